import { useCallback, useEffect, useRef, useState } from 'react';

type Said = { readonly from: string } & (
  | { readonly kind: 'hello' | 'here' | 'bye' }
  | { readonly kind: 'news'; readonly news: string }
);

export interface OtherTabs {
  /** How many other tabs of this browser have the same thing open. */
  readonly others: number;
  /** What another tab told last. */
  readonly news: string | null;
  readonly tell: (news: string) => void;
}

/** Other tabs of this browser that have the same thing open, by the name of the thing. */
export function useOtherTabs(name: string): OtherTabs {
  const [others, setOthers] = useState<ReadonlySet<string>>(new Set());
  const [news, setNews] = useState<string | null>(null);
  const say = useRef<(said: Said) => void>(undefined);
  const me = useRef(crypto.randomUUID());
  useEffect(() => {
    if (typeof BroadcastChannel === 'undefined') return;
    const channel = new BroadcastChannel(name);
    const from = me.current;
    say.current = said => channel.postMessage(said);
    channel.onmessage = ({ data }: MessageEvent<Said>) => {
      if (data.kind === 'hello') channel.postMessage({ kind: 'here', from });
      if (data.kind === 'news') setNews(data.news);
      setOthers(before => {
        const now = new Set(before);
        if (data.kind === 'bye') now.delete(data.from);
        else now.add(data.from);
        return now;
      });
    };
    const leave = () => channel.postMessage({ kind: 'bye', from });
    channel.postMessage({ kind: 'hello', from });
    window.addEventListener('pagehide', leave);
    return () => {
      leave();
      window.removeEventListener('pagehide', leave);
      say.current = undefined;
      channel.close();
    };
  }, [name]);
  const tell = useCallback((told: string) => say.current?.({ kind: 'news', from: me.current, news: told }), []);
  return { others: others.size, news, tell };
}
