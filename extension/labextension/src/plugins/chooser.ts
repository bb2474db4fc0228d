/** The body of the dialog in which users choose a template: one radio button for each template. */

import type { Dialog } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";

import type { Template } from "../wire";

export class TemplateChooser extends Widget implements Dialog.IBodyWidget {
  constructor(templates: readonly Template[]) {
    super();
    this.addClass("fd-templates");
    this.node.setAttribute("role", "radiogroup");
    this.node.append(...templates.map((template, index) => choice(template, index === 0)));
  }

  /** Return the name of the chosen template. */
  getValue(): string {
    return this.node.querySelector<HTMLInputElement>("input:checked")?.value ?? "";
  }
}

function choice({ name, title, description }: Template, checked: boolean): HTMLElement {
  const label = document.createElement("label");
  const input = document.createElement("input");
  Object.assign(input, { type: "radio", name: "farandole-template", value: name, checked });
  const text = document.createElement("span");
  text.append(element("strong", title), element("small", description));
  label.append(input, text);
  return label;
}

function element(tag: string, text: string): HTMLElement {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}
