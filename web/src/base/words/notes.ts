/** What the server says in English of a run, a report or a fork, beside causes and ways out, in Chinese. The first that fits counts. */
export const NOTES_ZH: readonly (readonly [form: RegExp, text: string])[] = [
  // notes and messages of a report
  [/^stopped at the expected call that has no recorded answer; .*$/, '停在没有录制应答的预期调用处；之后的内容未比较'],
  [/^after the run the program went on, and was stopped: (.*)$/, '运行结束后程序仍在继续，已被停止：$1'],
  [/^after the run the program stood still, and was ended$/, '运行结束后程序停滞不动，已被终止'],
  [/^made from another prompt: template (.*)$/, '由另一个提示词模板生成：$1'],
  [/^the agent raised (.*)$/, '智能体抛出了 $1'],
  [/^the program raised (.*)$/, '程序抛出了 $1'],
  [/^the program starts other runs too; .*$/, '程序还会开始其他运行；它们都在开始之处被停止'],
  [/^runs that came before this one, and that it did without: (.*)$/, '在此之前开始、而此运行并不需要的运行：$1'],
  [/^the source of the agent (.*) has changed since it was recorded$/, '智能体 $1 的源代码在录制之后有改动'],
  [
    /^the tape waits for timer (.*) of lane (.*) \(a sleep or a timeout\)$/,
    '磁带在等待通道 $2 的计时器 $1（等待或超时）',
  ],
  [/^it came to its end in the recording, and is cancelled now$/, '它在录制中正常结束，现在却被取消'],
  [
    /^(?:timer )?(\S+) came to its end in the recording, and is cancelled now$/,
    '计时器 $1 在录制中正常结束，现在却被取消',
  ],
  [/^a sleep or a timeout that ran out in the recording .*$/, '录制中到时的等待或超时，在程序中没有到时'],
  [/^(\S+) recorded call\S* left$/, '剩余 $1 个录制的调用'],
  [/^did not appear: (.*)$/, '没有出现：$1'],
  [/^the child process was ended after (.*) and left no report$/, '子进程在 $1 后被终止，没有留下报告'],
  [/^the child process (?:ended with code )?(.*) and left no report$/, '子进程已结束（$1），没有留下报告'],
  [/^the program ended with exit code (.*), the recorded one with (.*)$/, '程序的退出码是 $1，录制的是 $2'],
  [/^there is no run\.finished: .*$/, '没有 run.finished：运行仍在继续、已中断，或结尾被截断'],
  [
    /^the program did not come to this run: an earlier one, (\S+), did not agree .*$/,
    '程序没有走到此运行：更早的运行 $1 不一致',
  ],
  [/^outside of the run's context: (.*)$/, '在运行的上下文之外：$1'],
  // what a recording lacks
  [/^profile redacted: .*$/, '保留方式 redacted：个人数据已换成占位符，回放也给出占位符'],
  [/^profile digest_only: .*$/, '保留方式 digest_only：值只保留摘要'],
  [/^(\S+): of values only digests are kept \(sample (.*)\)$/, '$1：值只保留摘要（sample $2）'],
  [
    /^(\S+)(?: values?)? of clock, chance, ids or environment dropped: .*$/,
    '丢弃了 $1 个时钟、随机数、标识或环境的值：队列已满（when_full = drop_bodies）',
  ],
  [/^what the (.*) does is not in this recording$/, '$1 所做的事不在此录制中'],
  [/^(.*) ran outside the run's context .* is not in this recording$/, '$1 在运行的上下文之外执行，不在此录制中'],
  [/^(.*) is not in this recording$/, '$1 不在此录制中'],
  [/^(\S+) (.*) had not ended when the run did$/, '运行结束时 $2（$1）尚未结束'],
  [/^tool (.*) ran outside the boundary: .*$/, '工具 $1 在边界之外执行：请加上 @loupe.tool'],
  [
    /^tool (.*) was asked for and not seen to run: .*$/,
    '模型请求了工具 $1，但没有看到它执行：请加上装饰器，或它从未执行',
  ],
  [/^the store failed meanwhile \((.*)\)$/, '其间存储失败（$1）'],
  [/^the recorder failed \((.*)\)$/, '录制器出错（$1）'],
  [/^(.*) passed without a record \((.*)\)$/, '$1 未经录制便已通过（$2）'],
  [/^the result of (.*) could not be encoded \((.*)\)$/, '$1 的结果无法编码（$2）'],
  [/^(.*): (\S+) of type (\S+) could not be recorded$/, '$1：类型 $3 的 $2 无法录制'],
  [
    /^stream of (.*): (\S+) bytes are no messages .*$/,
    '$1 的流：$2 个字节不是消息（校验和或长度有误），按原样保留，并尽可能检查其中的机密',
  ],
  [/^(.*): a rule of secret removal failed, .*$/, '$1：一条敏感信息移除规则失败，相关内容已扣留'],
  [/^(.*): what its process did last may not be in this recording$/, '$1：其进程最后所做的事可能不在此录制中'],
  [/^definitions of tools are not known$/, '工具的定义未知'],
  [/^times without a zone were taken as UTC .*$/, '没有时区的时间按 UTC 处理'],
  [/^(\S+) model requests are not whole$/, '$1 个模型请求不完整'],
  // before a fork
  [
    /^the recording holds placeholders of removed secrets \((.*)\): .*$/,
    '录制中有已移除机密的占位符（$1）：模型看到的是占位符',
  ],
  [
    /^tools run at the provider, for real, and are not answered from the cassette: (.*)$/,
    '这些工具在提供方真正执行，不由卡带应答：$1',
  ],
  [
    /^the provider holds part of what is asked \(server_held\): .*$/,
    '所问内容的一部分由提供方保存（server_held）：它所记住的可能已经改变',
  ],
  [/^tool results without their call, .*: (.*)$/, '工具结果没有对应的调用，提供方会拒绝这样的历史：$1'],
  [/^tool calls without a result, .*: (.*)$/, '工具调用没有结果，提供方会拒绝这样的历史：$1'],
  [/^one id is used by several tool calls, .*: (.*)$/, '多个工具调用使用同一个标识，有的提供方会拒绝：$1'],
  [/^(.*): a signed thinking block is edited or dropped, .*$/, '$1：改动或去掉了有签名的思考块，其提供方会拒绝此历史'],
  [
    /^thinking blocks are signed for (.*): another model may refuse them \((.*)\)$/,
    '思考块是为 $1 签名的：其他模型可能拒绝（$2）',
  ],
  [
    /^(\S+) is known to refuse (\S+) \(.*\): it is sent as recorded, .*$/,
    '已知 $1 会拒绝 $2：仍按录制的发送，可在请求中改动或去掉',
  ],
  [/^this form of request has no (\S+) \(.*\): .*$/, '此请求形式没有 $1：仍会发送'],
  [
    /^max_tokens \((.*)\) must be more than thinking\.budget_tokens \((.*)\), .*$/,
    'max_tokens（$1）必须大于 thinking.budget_tokens（$2），否则模型会拒绝',
  ],
  [/^with thinking enabled only temperature 1 is accepted: .*$/, '启用思考时只接受温度 1：仍会发送'],
  // of a fork that was made
  [/^(.*) was applied to (\d+) request\S*$/, '$1 用于 $2 个请求'],
  [
    /^(\d+) kept calls have another input than recorded \(code changed\)$/,
    '$1 个保留的调用的输入与录制的不同（代码有改动）',
  ],
  [/^(\S+) was cut off when its worker went; (\S+) was made in its place$/, '$1 在其工作进程退出时被截断；代之以 $2'],
];
