import type { components } from './schema';

type Schemas = components['schemas'];

export type Run = Schemas['Run'];
export type RunDetail = Schemas['RunDetail'];
export type RunShort = Schemas['RunShort'];
export type RunPage = Schemas['RunPage'];
export type Facets = Schemas['Facets'];
export type StepHeader = Schemas['StepHeader'];
export type StepDetail = Schemas['StepDetail'];
export type Cut = Schemas['Text'];
export type Said = Schemas['Said'];
export type Call = Schemas['CallRow'];
export type ModelCard = Schemas['ModelCard'];
export type AgentCard = Schemas['AgentCard'];
export type StepCard = Schemas['StepCard'] | Schemas['LimitCard'];
export type GroupCard = Schemas['GroupCard'];
export type KeptCard = Schemas['KeptCard'];
export type Card = Schemas['TranscriptPage']['items'][number];
export type Minimap = Schemas['Minimap'];
export type Column = Schemas['MinimapColumn'];
export type Search = Schemas['Search'];
export type Messages = Schemas['Messages'];
export type Message = Schemas['Message'];
export type MessagePart = Schemas['MessagePart'];
export type Context = Schemas['Context'];
export type ContextPart = Schemas['ContextPart'];
export type StepDiff = Schemas['StepDiff'];
export type OpenEffects = Schemas['OpenEffects'];
export type OpenEffect = OpenEffects['items'][number];
export type SettledEffect = Schemas['Settled'];
export type EventEnvelope = Schemas['EventEnvelope'];
export type EventDetail = Schemas['EventDetail'];
export type EventPage = Schemas['EventPage'];

/** What the page shows of a step in a comparison; `line` says what was called and what came of it. */
export type ComparedSide = Omit<Schemas['StepName'], 'kind' | 'source'> & {
  readonly kind: StepHeader['kind'];
  readonly source: StepHeader['source'];
};
export type ComparedRow = Omit<Schemas['Row'], 'left' | 'right'> & {
  readonly left: ComparedSide | null;
  readonly right: ComparedSide | null;
};
export type ComparedHead = Schemas['Header'];
export type ComparePage = Omit<Schemas['ComparePage'], 'items'> & { readonly items: readonly ComparedRow[] };
export type Delta = Schemas['Delta'];
export type Summary = Schemas['Summary'];
export type SummaryRow = Schemas['SummaryRow'];
export type Path = Schemas['Path'];
export type Family = Schemas['Family'];
export type FamilyRun = Schemas['FamilyRun'];

/** A part of a list, and how long the list is. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly total: number;
  readonly first: number;
}
export type ForkDialog = Schemas['ForkDialog'];
export type Forked = Schemas['Forked'];
export type Estimated = Schemas['Estimated'];
export type Job = Schemas['Job'];
export type Reports = Schemas['ReportPage'];
export type Settings = Schemas['SettingsDocument'];
export type SettingsChange = Schemas['SettingsBody'];
export type Report = Schemas['Report'];
export type ReportDetail = Schemas['ReportDetail'];
export type Workers = Schemas['Workers'];
export type Verdict = Schemas['Verdict'];
export type About = Schemas['About'];
