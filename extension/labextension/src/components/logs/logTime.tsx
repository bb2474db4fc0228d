/** The form with which the user jumps to a time in a log. */

import { useState, type FormEvent, type JSX } from "react";

import { parseTime } from "../../state/logTime";
import { usePanelContext } from "../context";

interface Props {
  started: number;
  jump: (time: number) => void;
}

export function LogTime({ started, jump }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const [text, setText] = useState("");
  const time = parseTime(text, started);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (time !== null) jump(time);
  };
  return (
    <form className="fd-row" onSubmit={submit}>
      <input
        type="text"
        value={text}
        size={12}
        placeholder={trans.__("hh:mm:ss or +m:ss")}
        title={trans.__("A time of day such as 14:02:33, or the time since the start such as +1:30")}
        aria-label={trans.__("Time to jump to")}
        aria-invalid={text !== "" && time === null}
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit" className="fd-small" disabled={time === null}>
        {trans.__("Jump")}
      </button>
    </form>
  );
}
