/** Parses the time to which the user jumps in a log. */

const DAY = 86_400;

/**
 * Return a time in seconds since the epoch, or null if the text is not a time.
 *
 * `14:02:33` is the first such local time since the start of the run. `+90` and `+1:30` are 90 seconds after the start.
 */
export function parseTime(text: string, started: number): number | null {
  const found = /^\s*(\+?)\s*(\d{1,6}(?:\.\d+)?|\d{1,6}(?::[0-5]?\d){1,2})\s*$/.exec(text);
  const parts = (found?.[2] ?? "").split(":").map(Number);
  if (!found) return null;
  if (found[1]) return started + parts.reduce((total, part) => total * 60 + part, 0);
  return parts.length > 1 ? onTheDay(parts, started) : null;
}

function onTheDay([hours = 0, minutes = 0, seconds = 0]: number[], started: number): number | null {
  if (hours > 23) return null;
  const time = new Date(started * 1000).setHours(hours, minutes, seconds, 0) / 1000;
  return time < Math.floor(started) ? time + DAY : time;
}
