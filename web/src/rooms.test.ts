// @vitest-environment node
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

/** Rooms from the bottom up: imports point down only, and views do not know each other. */
const ROOMS = ['base', 'api', 'model', 'widgets', 'views', 'app'] as const;
const HERE = import.meta.dirname;
const FILES = readdirSync(HERE, { recursive: true, encoding: 'utf8' })
  .filter(file => /\.tsx?$/.test(file) && file.includes('/'))
  .sort();

const roomOf = (file: string) => ROOMS.findIndex(room => file.startsWith(`${room}/`));
const viewOf = (file: string) => /^views\/([^/]+)\//.exec(file)?.[1];

function imported(file: string): readonly string[] {
  const text = readFileSync(join(HERE, file), 'utf8');
  const found = [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']*)'/g)].map(match => match[1] ?? '');
  return found.map(target => relative(HERE, resolve(HERE, dirname(file), target)));
}

/** What is wrong with an import, or null. */
function fault(file: string, target: string): string | null {
  if (roomOf(target) > roomOf(file)) return `${file} imports ${target}, which is above it`;
  const [mine, its] = [viewOf(file), viewOf(target)];
  return mine && its && mine !== its ? `${file} imports ${target}: views do not know each other` : null;
}

describe('rooms', () => {
  it('every file stands in one', () => {
    expect(FILES.length).toBeGreaterThan(20);
    expect(FILES.filter(file => roomOf(file) < 0)).toEqual([]);
  });

  it('sees imports that point up or sideways', () => {
    expect(fault('model/a.ts', 'widgets/b')).toContain('above');
    expect(fault('views/run/A.tsx', 'views/runs/B')).toContain('each other');
    expect(fault('views/run/A.tsx', 'widgets/B')).toBeNull();
  });

  it('imports point down only', () => {
    const faults = FILES.flatMap(file => imported(file).map(target => fault(file, target)));
    expect(faults.filter(found => found !== null)).toEqual([]);
  });

  it('pure rooms hold no request and no React', () => {
    const pure = FILES.filter(file => file.startsWith('model/'));
    const text = (file: string) => readFileSync(join(HERE, file), 'utf8');
    expect(pure.filter(file => /\bfetch\(|from 'react'/.test(text(file)))).toEqual([]);
  });

  it('files stay small', () => {
    const lines = (file: string) => readFileSync(join(HERE, file), 'utf8').split('\n').length;
    expect(FILES.filter(file => file !== 'api/schema.ts' && lines(file) > 600)).toEqual([]);
  });
});
