/** The memory that a model takes on each rank, and what the rank sends in a step. It is drawn while the user shows it. */

import { useState, type JSX } from "react";

import { bytes } from "../../format";
import { useTranslator } from "../../i18n";
import type { ModelMemory, RankRow } from "../../wire";
import { Table } from "../parts";

const COLUMNS = ["parameters", "gradients", "optimizer", "activations", "step_sent"] as const;

export function MemoryTable({ rows }: { rows: readonly RankRow[] }): JSX.Element | null {
  const trans = useTranslator();
  const [open, setOpen] = useState(false);
  const measured = rows.flatMap(({ rank, model }) => (model ? [{ rank, model }] : []));
  if (!measured.length) return null;
  const heads = [
    trans.__("rank"),
    trans.__("parameters"),
    trans.__("gradients"),
    trans.__("optimizer"),
    trans.__("activations (peak)"),
    trans.__("sent per step"),
  ];
  return (
    <details className="fd-memory" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{trans.__("Memory of the model")}</summary>
      {open && (
        <Table label={trans.__("Memory of the model")} scroller={trans.__("Table of the memory")} heads={heads}>
          {measured.map(({ rank, model }) => (
            <Row key={rank} rank={rank} model={model} />
          ))}
        </Table>
      )}
    </details>
  );
}

function Row({ rank, model }: { rank: number; model: ModelMemory }): JSX.Element {
  return (
    <tr>
      <th scope="row">{rank}</th>
      {COLUMNS.map((column) => (
        <td key={column}>{bytes(model[column])}</td>
      ))}
    </tr>
  );
}
