// What the server answers (engine/ui in Go), and how it is asked.
import { useEffect, useRef, useState } from "preact/hooks";

export interface RunRow { name: string; recipe: string; status: string; started?: string; ended?: string; step: number; total: number; version: number; path: string }
export interface Block {
  address: string; kind: string; phase: string; message?: string; remedy?: string; since?: string; silent_since?: string; starts: number; restarts: number;
  step?: number; total?: number; unit?: string; left?: number; version?: number; doing?: string; needs: string[]; metrics: Record<string, number | null>;
  best_checkpoint?: { path: string; step: number; metric: string; value: number };
}
export interface Stall { address: string; message: string; remedy: string; seconds: number }
export interface Metric { name: string; last: number | null; n: number }
export interface Summary {
  name: string; recipe: string; file: string; id: string; status: string; message?: string; started?: string; ended?: string; engine: boolean;
  version: number; seq: number; blocks: Block[]; stalls: Stall[]; outputs: Record<string, unknown> | null; metrics: Metric[]; error?: string; samples: number; now: string;
}
export interface Points { x: number[]; y: (number | null)[]; n: number; last?: number | null }
export interface GroupRow {
  block: string; id: number; time: string; environment: string; sequences: number; tokens: number; longest: number; mean: number; spread: number;
  scores: number[] | null; versions?: number[]; step?: number; staleness?: number; dropped?: string; evaluation?: boolean; prompt: string; best: string;
}
export interface GroupList { groups: GroupRow[]; total: number; evaluations: number; lost: number; next: number; environments: string[] }
export interface Estimate { mean: number; low: number; high: number }
export interface Change { metric: string; tasks: number; before: number; after: number; change: number; low: number; high: number }
export interface Flip { task: number; prompt: string; solved: boolean; before: string; after: string }
export interface EvaluationResult { due: number; step: number; policy_version: number; time: string; seconds: number; asked: number; tasks: number; failed: number; score: Estimate; pass_at?: ({ k: number } & Estimate)[]; baseline?: Change[] }
export interface Evaluation {
  name: string; results: EvaluationResult[]; gained: number; lost: number; error?: string;
  change?: { differ?: boolean; before: { step: number }; after: { step: number }; changes: Change[]; flips: Flip[] };
}
export interface Same { groups: GroupRow[]; whole: boolean }
export interface Message { role: string; text: string }
export interface Completion { score: number | null; advantage: number | null; tokens: number; trained: number; mismatch: number | null; messages: Message[]; metrics?: Record<string, number | null>; finish?: string; failed?: string; part?: boolean; masked?: { start: number; end: number; why: string }[] }
export interface Group extends GroupRow { messages: Message[]; completions: Completion[]; computed: boolean; generation: Record<string, unknown> | null; expected: string }
export interface Token { id: number; text: string; trained: boolean; sampler?: number | null; trainer?: number | null; advantage?: number | null; version?: number }
export interface Sequence { tokens: Token[]; total: number; first: number }
export interface Span { from: number; to: number; what: string; label: string }
export interface Timeline { start: number; end: number; from: number; to: number; lanes: { name: string; devices?: string[]; block?: string; spans: Span[] }[]; marks: Span[] }
export interface LogLine { seq: number; time: string; type: string; address?: string; level: string; text: string; repeats?: number }
export interface Configuration {
  digest: string; file: string; plan: { time: string; address: string; action: string; reason: string }[];
  blocks: { address: string; config: Record<string, unknown> | null; plugin?: string; devices?: string[]; checkpoint?: { path: string; step: number } }[];
  outputs: Record<string, string>;
  lineage?: { run: { applied: string }; program?: string; machine: Record<string, unknown>; blocks: Record<string, unknown>; parent?: Record<string, unknown> };
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await fetch("api/" + path, { signal });
  const body = await response.json().catch((e) => {
    if (response.ok) throw e; // aborted, or cut short: no answer
    return { error: response.statusText };
  });
  if (!response.ok) throw new Error(body.error ?? response.statusText);
  return body as T;
}

export const part = encodeURIComponent;

// query makes a query string of the parameters that have a value.
export function query(parameters: Record<string, string | number | undefined | null>, names: string[] = []): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(parameters)) if (v !== undefined && v !== null && v !== "") q.append(k, String(v));
  for (const n of names) q.append("name", n);
  return q.toString();
}

export interface Loaded<T> { value?: T; error?: string; stale: boolean }

// useGet asks for a path, and again when `again` changes; what it had is shown meanwhile if only `again` has changed.
export function useGet<T>(path: string | null, again?: unknown): Loaded<T> {
  const [state, set] = useState<Loaded<T> & { path: string | null }>({ stale: true, path: null });
  const busy = useRef(false);
  const missed = useRef(0);
  const [retry, setRetry] = useState(0);
  useEffect(() => {
    if (path === null) return;
    if (busy.current && state.path === path) { missed.current++; return; }
    const aborter = new AbortController();
    busy.current = true;
    get<T>(path, aborter.signal).then(
      (value) => set({ value, stale: false, path }),
      (error) => { if (!aborter.signal.aborted) set((old) => ({ value: old.path === path ? old.value : undefined, error: String(error.message ?? error), stale: false, path })); },
    ).finally(() => {
      busy.current = false;
      if (missed.current > 0) { missed.current = 0; setRetry((n) => n + 1); }
    });
    return () => { if (state.path !== path) aborter.abort(); };
  }, [path, again, retry]);
  return state.path === path ? state : { stale: true };
}

// useAll asks for several paths, and again when `again` changes; undefined: no answer yet, or an error.
export function useAll<T>(paths: string[], again?: unknown): (T | undefined)[] {
  const [answers, set] = useState(new Map<string, T>());
  useEffect(() => {
    const aborter = new AbortController();
    for (const path of paths) get<T>(path, aborter.signal).then((value) => set((old) => new Map(old).set(path, value)), () => undefined);
    return () => aborter.abort();
  }, [paths.join("\n"), again]);
  return paths.map((path) => answers.get(path));
}

// useLive is the number of the newest event of a run, while it changes, at most once in `every` milliseconds.
export function useLive(run: string, every: number): { seq: number; connected: boolean } {
  const [state, set] = useState({ seq: 0, connected: false });
  useEffect(() => {
    const source = new EventSource(`api/runs/${part(run)}/stream`);
    let timer: ReturnType<typeof setTimeout> | undefined;
    let newest = 0;
    source.onmessage = (m) => {
      newest = Number(m.data);
      timer ??= setTimeout(() => { timer = undefined; set({ seq: newest, connected: true }); }, every);
    };
    source.onopen = () => set((s) => ({ ...s, connected: true }));
    source.onerror = () => set((s) => ({ ...s, connected: false }));
    return () => { source.close(); clearTimeout(timer); };
  }, [run, every]);
  return state;
}
