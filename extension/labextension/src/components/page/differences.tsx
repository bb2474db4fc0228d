/** The differences between compared runs: hyper-parameters, options, versions and code. */

import { useEffect, useMemo, useState, type JSX } from "react";

import { labels } from "../../charts/comparison";
import { codeDifference, differences, type Difference, type DiffLine } from "../../state/differences";
import type { RunDetail } from "../../wire";
import { usePanelContext } from "../context";
import { Empty, Note, Table } from "../parts";

const TAGS = { "+": "ins", "-": "del", " ": "span" } as const;

export function Differences({ ids }: { ids: readonly string[] }): JSX.Element {
  const { trans } = usePanelContext();
  const answers = useDetails(ids);
  if (!answers) return <Empty title={trans.__("Loading…")} />;
  const details = answers.filter((one) => one !== null);
  const unreadable = ids.filter((_, place) => answers[place] === null);
  const names = labels(details.map(({ view }) => view));
  const tables = [
    [trans.__("Hyper-parameters"), details.map(({ config }) => config)],
    [trans.__("Options"), details.map(({ options }) => options)],
    [trans.__("Versions"), details.map(({ versions }) => versions)],
  ] as const;
  return (
    <>
      {unreadable.length > 0 && (
        <Note>
          {trans._n(
            "This run cannot be read and is left out below: %2",
            "These %1 runs cannot be read and are left out below: %2",
            unreadable.length,
            unreadable.join(", "),
          )}
        </Note>
      )}
      {tables.map(([heading, values]) => (
        <Values key={heading} {...{ heading, names, values }} />
      ))}
      <Codes {...{ names, details }} />
    </>
  );
}

/** Return the details of each run, or null for a run that cannot be read; or null until the server has answered. */
function useDetails(ids: readonly string[]): (RunDetail | null)[] | null {
  const { model } = usePanelContext();
  const [details, setDetails] = useState<(RunDetail | null)[] | null>(null);
  const key = ids.join(" ");
  useEffect(() => {
    let mounted = true;
    const requests = key.split(" ").map((id) => model.attempt(() => model.api.run(id)));
    void Promise.all(requests).then((all) => mounted && setDetails(all));
    return () => {
      mounted = false;
    };
  }, [model, key]);
  return details;
}

interface ValuesProps {
  heading: string;
  names: string[];
  values: readonly Readonly<Record<string, unknown>>[];
}

function Values({ heading, names, values }: ValuesProps): JSX.Element {
  const { trans } = usePanelContext();
  const rows = useMemo(() => differences(values), [values]);
  return (
    <section className="fd-differences" aria-label={heading}>
      <h3>{heading}</h3>
      {rows.length ? (
        <Table label={heading} scroller={trans.__("Table of %1", heading)} heads={[trans.__("name"), ...names]}>
          {rows.map((row) => (
            <ValueRow key={row.key} row={row} />
          ))}
        </Table>
      ) : (
        <p className="fd-muted">{trans.__("These runs have none.")}</p>
      )}
    </section>
  );
}

/** The values of a key. If they differ, the row is marked with a sign, because not every user can see colours. */
function ValueRow({ row: { key, texts, same } }: { row: Difference }): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <tr data-differs={same ? undefined : ""}>
      <th scope="row">
        {!same && <span title={trans.__("different")}>≠ </span>}
        {key}
      </th>
      {texts.map((text, place) => (
        <td key={place}>{same && place > 0 ? <i>{trans.__("the same")}</i> : (text ?? "–")}</td>
      ))}
    </tr>
  );
}

/** The code of each run, compared with the code of the first run. */
function Codes({ names, details }: { names: readonly string[]; details: readonly RunDetail[] }): JSX.Element | null {
  const { trans } = usePanelContext();
  const [first, ...others] = details;
  if (!first) return null;
  return (
    <section className="fd-differences" aria-label={trans.__("Code")}>
      <h3>{trans.__("Code")}</h3>
      {others.map((other, place) => (
        <Code
          key={other.view.id}
          heading={trans.__("%1 compared with %2", names[place + 1] ?? "", names[0] ?? "")}
          before={first.code}
          after={other.code}
        />
      ))}
    </section>
  );
}

function Code({ heading, before, after }: { heading: string; before: string; after: string }): JSX.Element {
  const { trans } = usePanelContext();
  const hunks = useMemo(() => codeDifference(before, after), [before, after]);
  const same = hunks?.length === 0;
  return (
    <>
      <h4>{heading}</h4>
      {same && <p className="fd-muted">{trans.__("the same")}</p>}
      {!hunks && <p className="fd-muted">{trans.__("The code differs too much to compare its lines.")}</p>}
      {hunks?.map((lines, place) => (
        <Hunk key={place} {...{ lines, heading }} />
      ))}
    </>
  );
}

/** Lines of code. Each has its numbers in both codes and a sign that says whether it was added or removed. */
function Hunk({ lines, heading }: { lines: readonly DiffLine[]; heading: string }): JSX.Element {
  return (
    <div className="fd-scroll fd-diff" role="group" tabIndex={0} aria-label={heading}>
      <table>
        <tbody>
          {lines.map(({ mark, text, before, after }, place) => {
            const Tag = TAGS[mark];
            return (
              <tr key={place} data-mark={mark}>
                <td>{before}</td>
                <td>{after}</td>
                <td>{mark}</td>
                <td>
                  <Tag>{text}</Tag>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
