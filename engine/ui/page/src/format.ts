export function num(v: number | null | undefined, digits = 3): string {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  const a = Math.abs(v);
  if (a >= 1e9) return (v / 1e9).toFixed(a >= 1e10 ? 0 : 1) + " G";
  if (a >= 1e6) return (v / 1e6).toFixed(a >= 1e7 ? 0 : 1) + " M";
  if (a >= 1e4) return (v / 1e3).toFixed(a >= 1e5 ? 0 : 1) + " k";
  if (Number.isInteger(v)) return String(v);
  if (a !== 0 && a < 1e-3) return v.toExponential(1);
  return v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : digits);
}

export function span(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  if (seconds < 1) return seconds.toFixed(2) + " s";
  if (seconds < 60) return seconds.toFixed(0) + " s";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const clock = (t: string | number): string => new Date(typeof t === "number" ? t * 1000 : t).toLocaleTimeString();

// short is a block's address without its plugin.
export const short = (address: string): string => { const [kind, , ...name] = address.split("."); return name.length ? `${kind} ${name.join(".")}` : address; };
