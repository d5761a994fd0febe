import { afterEach, describe, expect, it, vi } from 'vitest';
import { ApiError, address, get, path, send, Unreachable } from './client';

const answers = (body: string, init?: ResponseInit) =>
  vi.stubGlobal(
    'fetch',
    vi.fn(async () => new Response(body, init)),
  );

afterEach(() => vi.unstubAllGlobals());

describe('addresses', () => {
  it('leave out what is not asked and repeat lists', () => {
    expect(address('/api/runs', { status: 'ok', q: '', misses: true, forks: false, tag: ['a', 'b&c'] })).toBe(
      '/api/runs?status=ok&misses=1&tag=a&tag=b%26c',
    );
    expect(address('/api/runs')).toBe('/api/runs');
  });

  it('hold ids that look like paths', () => {
    expect(path`/api/runs/${'../a b'}/steps/${3}`).toBe('/api/runs/..%2Fa%20b/steps/3');
  });
});

describe('requests', () => {
  it('keep every digit of what the server says', async () => {
    answers('{"n":9007199254740993}');
    expect(await get('/api/about')).toEqual({ n: 9007199254740993n });
  });

  it('turn a refusal into what the server said', async () => {
    const body = { error: { reason: 'run_not_found', message: 'no run x', hint: 'list them', place: 'id' } };
    answers(JSON.stringify(body), { status: 404, headers: { 'Retry-After': '18' } });
    const error = await get('/api/runs/x').catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({
      status: 404,
      reason: 'run_not_found',
      hint: 'list them',
      place: 'id',
      retryAfter: 18,
    });
  });

  it('survive a refusal that is no JSON', async () => {
    answers('<html>', { status: 502, statusText: 'Bad Gateway' });
    await expect(get('/x')).rejects.toMatchObject({ reason: 'unknown', message: '502 Bad Gateway' });
  });

  it('say when nobody answers', async () => {
    vi.stubGlobal(
      'fetch',
      vi.fn(async () => Promise.reject(new TypeError('failed'))),
    );
    await expect(get('/api/about')).rejects.toBeInstanceOf(Unreachable);
  });

  it('mark writes, and write big integers as digits', async () => {
    answers('');
    expect(await send('POST', '/api/x', { n: 9007199254740993n })).toBeNull();
    expect(fetch).toHaveBeenCalledWith('/api/x', {
      credentials: 'same-origin',
      method: 'POST',
      headers: { 'X-Loupe': '1', 'Content-Type': 'application/json' },
      body: '{"n":9007199254740993}',
    });
  });
});
