import { useQuery } from '@tanstack/react-query';
import type { Facets } from '../../api/types';
import { useWords, type WordKey } from '../../base/words';
import { COVERAGES, type RunsSearch, SINCE } from '../../model/addresses';
import { Chip, Item, Menu, Seg } from '../../widgets/controls';
import { RunText } from '../../widgets/text';
import { loadFacets } from './queries';

interface FiltersProps {
  readonly search: RunsSearch;
  readonly onChange: (change: RunsSearch) => void;
}

type Listed = 'agent' | 'status' | 'model' | 'tool' | 'tag';
const LISTED: readonly (readonly [Listed, keyof Facets])[] = [
  ['agent', 'agents'],
  ['status', 'statuses'],
  ['model', 'models'],
  ['tool', 'tools'],
  ['tag', 'tags'],
];

/** Filters of the list; each is a part of the address. */
export function Filters({ search, onChange }: FiltersProps) {
  const { t } = useWords();
  const found = useQuery({ queryKey: ['facets'], queryFn: ({ signal }) => loadFacets(signal), staleTime: 30_000 });
  const since = SINCE.find(name => name === search.since);
  return (
    <div className="row wrap filters">
      {LISTED.map(([name, facet]) => (
        <FacetMenu
          key={name}
          name={name}
          chosen={search[name]}
          values={found.data?.facets?.[facet] ?? []}
          onChoose={value => onChange({ [name]: value })}
        />
      ))}
      <Menu
        label={t('runs.filter.since')}
        chosen={since ? t(`runs.filter.${since}`) : search.since}
        onClear={() => onChange({ since: undefined })}
      >
        {SINCE.map(name => (
          <Item key={name} chosen={name === since} onChoose={() => onChange({ since: name })}>
            {t(`runs.filter.${name}`)}
          </Item>
        ))}
      </Menu>
      <Menu
        label={t('runs.filter.coverage')}
        chosen={search.coverage && t(`coverage.${search.coverage}`)}
        onClear={() => onChange({ coverage: undefined })}
      >
        {COVERAGES.map(name => (
          <Item key={name} chosen={name === search.coverage} onChoose={() => onChange({ coverage: name })}>
            {t(`coverage.${name}`)}
          </Item>
        ))}
      </Menu>
      <Chip
        on={search.misses === '1'}
        sign="miss"
        onToggle={() => onChange({ misses: search.misses ? undefined : '1' })}
      >
        {t('runs.filter.misses')}
      </Chip>
      <Chip on={search.forks === '1'} sign="fork" onToggle={() => onChange({ forks: search.forks ? undefined : '1' })}>
        {t('runs.filter.forks')}
      </Chip>
      <Chip on={search.roots === '1'} onToggle={() => onChange({ roots: search.roots ? undefined : '1' })}>
        {t('runs.filter.roots')}
      </Chip>
      {search.q && (
        <Chip on onToggle={() => onChange({ q: undefined })}>
          {t('runs.filter.q')}{' '}
          <b>
            <RunText>{search.q}</RunText>
          </b>{' '}
          ×
        </Chip>
      )}
      <span className="grow" />
      <Seg
        label={t('runs.sort')}
        value={search.sort ?? 'newest'}
        choices={[
          { value: 'family', label: t('runs.sort.family') },
          { value: 'newest', label: t('runs.sort.time') },
        ]}
        onChoose={sort => onChange({ sort: sort === 'family' ? sort : undefined })}
      />
    </div>
  );
}

interface FacetMenuProps {
  readonly name: Listed;
  readonly chosen: string | undefined;
  readonly values: readonly { readonly value: string; readonly count: number }[];
  readonly onChoose: (value: string | undefined) => void;
}

function FacetMenu({ name, chosen, values, onChoose }: FacetMenuProps) {
  const { t } = useWords();
  const shown = (value: string) => (name === 'status' ? t(`status.${value}` as WordKey) : value);
  return (
    <Menu
      label={t(`runs.filter.${name}`)}
      chosen={chosen && <RunText>{shown(chosen)}</RunText>}
      onClear={() => onChoose(undefined)}
    >
      {values.map(({ value, count }) => (
        <Item key={value} note={count} chosen={value === chosen} onChoose={() => onChoose(value)}>
          <RunText>{shown(value)}</RunText>
        </Item>
      ))}
      {values.length === 0 && <span className="item dim">{t('runs.filter.nothing')}</span>}
    </Menu>
  );
}
