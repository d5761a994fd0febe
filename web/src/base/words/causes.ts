/** What a replay's report says in English, in Chinese: likely causes, ways out, near calls, what was not observed. */
export const CAUSES_ZH: readonly (readonly [form: RegExp, text: string])[] = [
  // likely causes
  [
    /^the texts differ only in their Unicode form \(.*\)$/,
    '两段文本只是 Unicode 规范形式不同（组合字符与分解字符，NFC 与 NFD）',
  ],
  [/^the texts differ only in kinds of space: (.*)$/, '两段文本只是空格种类不同：$1'],
  [/^the texts differ only in line ends or in space at the end of lines$/, '两段文本只是换行符或行尾空格不同'],
  [
    /^the same parts in another order: .*$/,
    '各部分相同，顺序不同：其中用到了无序的集合（set、文件列表），使用前请先排序（set 的顺序取决于 PYTHONHASHSEED）',
  ],
  [/^the differing part looks like a time: .*; use (\S+)$/, '不同之处像是时间：时钟是在边界之外读取的；请改用 $1'],
  [
    /^the differing part looks like a generated id: .*; use (\S+)$/,
    '不同之处像是生成的标识：它是在边界之外产生的；请改用 $1',
  ],
  [
    /^the differing part looks like a random number drawn outside the boundary; use (\S+)$/,
    '不同之处像是在边界之外取得的随机数；请改用 $1',
  ],
  [
    /^the differing part is a memory address: an object's default repr went into it$/,
    '不同之处是内存地址：其中用到了对象的默认 repr',
  ],
  [
    /^the text of a traceback went into it: .*$/,
    '里面有一段 traceback 的文本：它写着工具的代码行，而回放不运行工具；请只用错误自己的文本 str(error)',
  ],
  [/^the differing part is a temporary path: .*$/, '不同之处是临时路径：每个进程的都不一样'],
  [
    /^one side was redacted and the other was not: .*$/,
    '一侧做了脱敏而另一侧没有：只凭名称识别的机密换了名称继续传递（请把那个名称或它的格式写进 [secrets]），或者录制与回放的脱敏规则不同',
  ],
  [/^the system prompt is not the recorded one: .*$/, '系统提示词与录制的不同：提示词模板改了'],
  [/^a message differs: .*$/, '有一条消息不同：放入提示词的内容与录制的不同'],
  [/^the tools offered to the model are not the recorded ones: .*$/, '提供给模型的工具与录制的不同：签名或描述改了'],
  [/^a parameter of the request is not the recorded one: (.*)$/, '请求的参数与录制的不同：$1'],
  // ways out
  [/^if the order is meant to differ, .*$/, '如果顺序本应不同，请用 --expect 说明；否则查看程序为何跳过或调换了调用'],
  [
    /^if the call was renamed or replaced on purpose, .*$/,
    '如果调用是有意改名或替换的，请用 --expect 说明，或重新录制',
  ],
  [
    /^if the change is meant, name it with --expect, .*$/,
    '如果改动是有意的，请用 --expect 说明，或从头分叉来试；否则请撤销改动',
  ],
  [/^if the further call is meant, .*$/, '如果多出的调用是有意的，请重新录制，或从头分叉'],
  [/^if the call is meant to go away, .*$/, '如果调用本应消失，请用 --expect 说明；否则查看程序为何提前结束'],
  [/^compare both values; if the change is meant, .*$/, '请比较两个值；如果改动是有意的，请用 --expect 说明'],
  [/^send this through the boundary: (.*), or a wrapped client$/, '请让它经过边界：$1，或包装过的客户端'],
  [/^if reading on is meant, .*$/, '如果继续读取是有意的，请重新录制，或从此步骤分叉'],
  [/^if leaving off there is meant, .*$/, '如果在那里停止是有意的，请重新录制；否则查看程序为何停止读取'],
  [/^what came after that is not recorded: .*$/, '之后的内容没有录制：请重新录制，或从此步骤分叉'],
  [/^look at what the program waits for: .*$/, '请查看程序在等什么：锁、队列，或边界之外的回答'],
  [
    /^start the recorded agent with the recorded arguments .*$/,
    '请用录制的参数启动录制的代理（一个程序有多个运行时：指定它的代理）',
  ],
  [/^replay that one first: (.*)$/, '请先回放那一个：$1'],
  [/^an interrupted run goes on with (`.*`), and can be replayed then$/, '中断的运行可用 $1 继续，之后就能回放'],
  // near calls
  [/^already consumed$/, '已经用过'],
  [/^the same call, but (\d+) recorded calls? comes? before it$/, '同一个调用，但它前面还有 $1 个录制的调用'],
  [/^other arguments at (.*)$/, '参数不同：$1'],
  [/^the recorded input cannot be shown: (.*)$/, '录制的输入无法显示：$1'],
  // what was not observed, and how the way out was shut
  [/^direct reads of clock, random, os\.environ$/, '直接读取的时钟、随机数和 os.environ'],
  [/^native sockets, and connections that were open before$/, '原生套接字，以及之前已打开的连接'],
  [/^audit hook in this process$/, '本进程中的审计钩子'],
  [/^child process in an empty network namespace$/, '空网络命名空间中的子进程'],
  [/^child process with an audit hook$/, '带审计钩子的子进程'],
  [/^nothing was run$/, '没有运行任何东西'],
];
