import { describe, expect, it } from 'vitest';
import { changedPlaces } from './overrides';

describe('what a fork changed', () => {
  it('has a word for places that people know, each once', () => {
    const changed = changedPlaces([
      { path: 'messages[0].content' },
      { path: 'messages[2]' },
      { path: 'messages[4]' },
      { path: 'model' },
    ]);
    expect(changed).toEqual(['override.system_prompt', 'override.messages', 'override.model']);
  });

  it('names any other place as it is', () => {
    expect(changedPlaces([{ path: 'top_k' }, { path: 'top_k' }, {}])).toEqual([
      { place: 'top_k' },
      { place: 'request' },
    ]);
  });
});
