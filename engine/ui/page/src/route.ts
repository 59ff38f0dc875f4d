// Where the page is: #/RUN/VIEW/more?parameters. Links are stable: everything that a view shows is in its address.
import { useEffect, useState } from "preact/hooks";
import { part } from "./api";

export interface Route { run: string; view: string; rest: string[]; q: URLSearchParams }

function read(): Route {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [run = "", view = "", ...rest] = path.split("/").map((p) => { try { return decodeURIComponent(p); } catch { return p; } });
  return { run, view: view || "overview", rest, q: new URLSearchParams(search ?? "") };
}

export function useRoute(): Route {
  const [route, set] = useState(read);
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export function link(run: string, view: string, rest: (string | number)[] = [], q?: Record<string, string | number | undefined> | URLSearchParams): string {
  const search = q instanceof URLSearchParams ? q : new URLSearchParams();
  if (q && !(q instanceof URLSearchParams)) for (const [k, v] of Object.entries(q)) if (v !== undefined && v !== "") search.set(k, String(v));
  const tail = search.toString();
  return "#/" + [run, view, ...rest].map((p) => part(String(p))).join("/") + (tail ? "?" + tail : "");
}

// change sets parameters of the address; an empty value removes one.
export function change(route: Route, parameters: Record<string, string>): void {
  const q = new URLSearchParams(route.q);
  for (const [k, v] of Object.entries(parameters)) if (v === "") q.delete(k); else q.set(k, v);
  location.replace(link(route.run, route.view, route.rest, q));
}
