/** The table of ranks with their resource usage, throughput and step time. */

import type { JSX } from "react";

import { bytes, bytesOf, number, percent, stepTime } from "../../format";
import { useTranslator } from "../../i18n";
import type { RankRow } from "../../wire";
import { stateLabel, Table } from "../parts";

export function RankTable({ rows }: { rows: readonly RankRow[] }): JSX.Element | null {
  const trans = useTranslator();
  const gpu = rows.some((row) => row.gpu !== null || row.gpu_memory !== null);
  if (!rows.length) return null;
  const heads = [
    trans.__("rank"),
    trans.__("worker"),
    trans.__("state"),
    trans.__("CPU"),
    trans.__("memory"),
    ...(gpu ? [trans.__("GPU"), trans.__("GPU memory")] : []),
    trans.__("samples/s"),
    trans.__("step"),
  ];
  return (
    <Table label={trans.__("Ranks")} scroller={trans.__("Table of ranks")} heads={heads}>
      {rows.map((row) => (
        <Row key={row.rank} row={row} gpu={gpu} />
      ))}
    </Table>
  );
}

function Row({ row, gpu }: { row: RankRow; gpu: boolean }): JSX.Element {
  const trans = useTranslator();
  return (
    <tr>
      <th scope="row">{row.rank}</th>
      <td title={row.worker}>{row.worker}</td>
      <td>
        <span className="fd-state" data-status={row.state}>
          {stateLabel(trans, row.state)}
        </span>
      </td>
      <td>{percent(row.cpu)}</td>
      <td>{bytes(row.memory)}</td>
      {gpu && <td>{percent(row.gpu)}</td>}
      {gpu && <td>{bytesOf(row.gpu_memory, row.gpu_memory_total)}</td>}
      <td>{number(row.samples_per_second)}</td>
      <td>
        {row.slowest && <span className="fd-slow">{trans.__("slowest")}</span>} {stepTime(row.step_seconds)}
      </td>
    </tr>
  );
}
