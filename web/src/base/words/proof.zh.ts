import type { Phrase } from './index';
import type { proof as en } from './proof.en';

export const proof: Readonly<Record<keyof typeof en, Phrase>> = {
  'events.say': '封存时的结构与摘要。所说的内容以其摘要指名。',
  'events.type': '类型',
  'events.ofStep': '步骤 {step} 的事件',
  'events.noneOf': '此运行没有这一类事件。',
  'events.col.seq': '事件',
  'events.col.type': '类型',
  'events.col.step': '步骤',
  'events.col.name': '名称',
  'events.col.source': '来源',
  'events.col.call': '调用',
  'events.col.lane': '通道',
  'events.col.time': '时间（秒）',
  'events.col.input': '输入',
  'events.col.output': '输出',
  'events.col.hash': '哈希',
  'events.before': '前一哈希',
  'events.cause': '起因',
  'events.sealed': '封存时的内容',
  'events.sealedSay': '其哈希由前一哈希与这些成员的规范形式算出。',
  'events.none': '没有事件。',
  'events.of': '{n} 个事件，共 {total} 个',
  'events.all': '显示此运行的全部事件',
  'events.this': '显示此步骤的全部事件',
};
