import { LabIcon } from "@jupyterlab/ui-components";

/** The icon of Farandole, which shows a leading dancer and a chain of dancers behind the leader. */
export const farandoleIcon = new LabIcon({
  name: "farandole:icon",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="none" stroke="#616161" stroke-width="1.8" stroke-linecap="round">
    <path d="M6.5 8.5c2.5 4.5 5 6.5 9.5 8.2"/>
  </g>
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <circle cx="5.5" cy="6.5" r="3.5"/><circle cx="11" cy="14" r="2.3"/><circle cx="18" cy="17.5" r="2.3"/>
    <circle cx="17.5" cy="7" r="2.3"/>
  </g>
</svg>`,
});
