import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ApiError, Unreachable } from '../api/client';
import { Seg, Tabs } from './controls';
import { Words } from './diff';
import { Failure } from './states';
import { Kind, SourceTag } from './tags';
import { Count, RunText } from './text';

afterEach(cleanup);

describe('text of a run', () => {
  it('is text, whatever it looks like', () => {
    const { container } = render(<RunText>{'<b onclick="x()">bold</b> [a](javascript:x)'}</RunText>);
    expect(container.querySelector('b, a')).toBeNull();
    expect(container.textContent).toBe('<b onclick="x()">bold</b> [a](javascript:x)');
  });

  it('shows what cannot be seen, with its code', () => {
    render(<RunText>{'a\u202eb'}</RunText>);
    expect(screen.getByTitle('U+202E').textContent).toBe('202E');
  });

  it('says where words went and came', () => {
    const { container } = render(
      <Words
        words={[
          ['=', 'a '],
          ['-', 'b'],
          ['+', 'c'],
        ]}
      />,
    );
    expect([container.querySelector('del')?.textContent, container.querySelector('ins')?.textContent]).toEqual([
      'b',
      'c',
    ]);
  });
});

describe('figures and signs', () => {
  it('never show unknown as nothing', () => {
    render(<Count value={null} />);
    expect(screen.getByText('unknown')).toBeTruthy();
  });

  it('have names that are heard', () => {
    render(<Kind kind="llm" />);
    render(<SourceTag source="miss" />);
    expect(screen.getByRole('img', { name: 'model step' }).textContent).toBe('M');
    expect(screen.getByText('miss')).toBeTruthy();
  });
});

describe('controls', () => {
  it('tell which part is chosen', () => {
    const chosen = vi.fn();
    render(
      <Seg
        label="Side"
        value="a"
        choices={[
          { value: 'a', label: 'A' },
          { value: 'b', label: 'B' },
        ]}
        onChoose={chosen}
      />,
    );
    expect(screen.getByRole('button', { name: 'A', pressed: true })).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: 'B' }));
    expect(chosen).toHaveBeenCalledWith('b');
  });

  it('let arrows go round the tabs', () => {
    const chosen = vi.fn();
    const tabs = [
      { value: 'a', label: 'A' },
      { value: 'b', label: 'B' },
    ];
    render(<Tabs label="Tabs" value="a" tabs={tabs} panel="p" onChoose={chosen} />);
    fireEvent.keyDown(screen.getByRole('tablist'), { key: 'ArrowLeft' });
    expect(chosen).toHaveBeenCalledWith('b');
  });
});

describe('a failure', () => {
  it('says what the server said, and the way out', () => {
    const again = vi.fn();
    render(<Failure error={new ApiError(503, 'store_busy', 'the store is busy', 'wait')} again={again} />);
    expect(screen.getByRole('alert').textContent).toContain('the store is busywait');
    fireEvent.click(screen.getByRole('button', { name: 'Try again' }));
    expect(again).toHaveBeenCalled();
  });

  it.each([400, 404, 422])(
    'offers the way back instead of another try where a refusal would come again: %d',
    status => {
      render(<Failure error={new ApiError(status, 'asked_wrong', 'no', null)} again={vi.fn()} />);
      expect(screen.queryByRole('button')).toBeNull();
      expect(screen.getByRole('link', { name: 'Go to the runs' })).toBeTruthy();
    },
  );

  it('leads to the runs from what is not there, and keeps the advice for programs to itself', () => {
    render(<Failure error={new ApiError(404, 'run_not_found', 'no run x', 'GET /api/runs lists what there is')} />);
    expect(screen.getByRole('alert').textContent).toBe('no run xGo to the runs');
    expect(screen.getByRole('link', { name: 'Go to the runs' }).getAttribute('href')).toBe('/runs');
  });

  it('knows a server that is gone', () => {
    render(<Failure error={new Unreachable('/api')} />);
    expect(screen.getByRole('alert').textContent).toContain('The server did not answer.');
  });
});
