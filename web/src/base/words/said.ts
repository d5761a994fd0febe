import { CAUSES_ZH } from './causes';
import type { Language } from './index';
import { NOTES_ZH } from './notes';

/** What the server says in English, by its stable codes, in other languages. What is not here stays English. */
interface Said {
  readonly reasons: Readonly<Record<string, string>>;
  /** Where in the English text stands what is no sentence: a name, a cause. It is said behind the reason, and that is all. */
  readonly details: Readonly<Record<string, RegExp>>;
  /** Sentences that have no code; each is the whole text, or a part of it that stands alone. */
  readonly sentences: readonly (readonly [form: RegExp, text: string])[];
}

const zh: Said = {
  reasons: {
    run_not_found: '没有此运行。',
    step_not_found: '没有此步骤。',
    not_found: '没有此内容。',
    no_step: '没有此步骤。',
    not_llm: '此步骤不是模型步骤；分叉从模型步骤开始。',
    cut_request: '存储的请求不完整，不能由此分叉。',
    no_code: '需要您自己的代码。',
    no_worker: '没有工作进程拥有此代理。',
    imported: '这是导入的运行：其代码不在此处。',
    form: '通用循环不支持此请求形式。',
    start: '只有代理自己的代码能从头开始。',
    deleted: '运行已删除，其请求不复存在。',
    no_request: '请求未被录制。',
    no_model: '没有设置可询问的模型。',
    diverges_before: '代码在分叉步骤之前就已分歧。',
    hosted_tool: '请求允许提供方执行可能写入的工具。',
    live_write: '写工具从不实时执行。',
    live_not_listed: '此工具不在可实时执行的名单中。',
    live_no_reason: '实时执行需要书面理由。',
    live_read: '此工具会读取真实世界，须明确说明这是有意的。',
    live_no_function: '没有此工具的代码，不能实时执行。',
    sandbox: '沙箱只能在终端中指定。',
    quota: '配额已用尽。',
    rate_limited: '请求过多，请稍后再试。',
    too_large: '内容过大。',
    unknown_format: '文件格式未知。',
    read_only: '此处不能改动。',
    settings_changed: '设置已在别处改动：请重新读取。',
    settings_fault: '设置文件现在无法理解。',
    erased: '内容已删除。',
    body_missing: '正文缺失。',
    damaged: '录制已损坏。',
    version: '录制由更新的版本写成。',
  },
  details: {
    cut_request: /: (.*)$/,
    no_worker: /'(.*)'$/,
    form: /'(.*)'$/,
    run_not_found: /'(.*)'/,
    step_not_found: /no step (\d+)/,
  },
  sentences: [
    [/^nearest recorded call: (\S+) in step (\d+) of (\S+)/, '最接近的录制调用：运行 $3 步骤 $2 的 $1'],
    [/^nearest recorded call: (\S+) in (\S+)/, '最接近的录制调用：运行 $2 的 $1'],
    [/( \(|; )(\S+) changed: /g, '$1$2 改为不同的值：'],
    [/( \(|; )(\S+) added: /g, '$1新增 $2：'],
    [/( \(|; )(\S+) removed: /g, '$1去掉 $2：'],
    ...CAUSES_ZH,
    ...NOTES_ZH,
  ],
};

const SAID: Partial<Readonly<Record<Language, Said>>> = { 'zh-CN': zh };

/** The words of a language for one of the server's codes; null where it has none, and in English. */
export function reasonIn(language: Language, reason: string): string | null {
  return SAID[language]?.reasons[reason] ?? null;
}

/** Why something cannot be done, by the server's code, in a language; the server's own text where the code is not known. */
export function whyIn(language: Language, code: string | null, text: string | null): string {
  const said = code === null ? null : reasonIn(language, code);
  if (said === null || code === null) return text ?? '';
  const detail = SAID[language]?.details[code]?.exec(text ?? '')?.[1];
  return detail ? `${said.replace(/。$/, '')}：${detail}` : said;
}

/** Whether a reason with its detail says in a language all that the server's English text says. */
export function saysAll(language: Language, reason: string): boolean {
  return SAID[language]?.details[reason] !== undefined;
}

/** A fixed sentence of the server that has no code, in a language; as it came where it is not known. */
export function sentenceIn(language: Language, text: string): string {
  const forms = SAID[language]?.sentences ?? [];
  if (!forms.some(([form]) => form.source.startsWith('^') && form.test(text))) return text;
  return forms.reduce((said, [form, other]) => said.replace(form, other), text);
}
