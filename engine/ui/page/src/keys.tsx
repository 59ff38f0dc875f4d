// Keys of the page, and the list of them.
import { useEffect, useRef } from "preact/hooks";
import { Route, link } from "./route";

const help: [string, string][] = [
  ["1 – 7", "the views, from Overview to Plan"], ["/", "the search field of a view"], ["n, p", "the next and the previous group of samples"],
  ["+ − ← →", "zoom and move a chart that has the focus; Escape shows all of it"], ["← →", "from token to token"], ["?", "this list; Escape closes it"],
];

// typing says that a key is for the field that has the focus.
const typing = (e: KeyboardEvent): boolean => e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test((e.target as HTMLElement).tagName);

export function Keys({ route, views }: { route: Route; views: string[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const near = (by: number) => {
      const [block, id] = route.rest;
      if (route.view === "samples" && id) location.hash = link(route.run, "samples", [block, Number(id) + by], route.q);
    };
    const pressed = (e: KeyboardEvent) => {
      if (typing(e) || dialog.current?.open) return;
      const search = document.querySelector<HTMLInputElement>("main input[type=search]"), view = views[Number(e.key) - 1];
      if (e.key === "?") dialog.current?.showModal();
      else if (e.key === "n") near(1);
      else if (e.key === "p") near(-1);
      else if (e.key === "/" && search) search.focus();
      else if (view) location.hash = link(route.run, view);
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [route]);
  return (
    <>
      <button type="button" onClick={() => dialog.current?.showModal()}>Keys</button>
      <dialog ref={dialog} aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        <dl>{help.map(([key, what]) => <div key={what}><dt>{key}</dt><dd>{what}</dd></div>)}</dl>
        <button type="button" onClick={() => dialog.current?.close()}>Close</button>
      </dialog>
    </>
  );
}
