package keys

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// QueueRecord is the byte after the service in a key of the queue. Numbers are stored and never reused.
type QueueRecord byte

// The records of the queue. Queues are numbered within their partition, so that a name is stored once.
const (
	RecordQueueMeta     QueueRecord = 1  // counters of the partition's queue
	RecordQueueConfig   QueueRecord = 2  // by name: number and configuration
	RecordQueueCounters QueueRecord = 3  // by number
	RecordTaskPayload   QueueRecord = 4  // by task: what never changes
	RecordTaskState     QueueRecord = 5  // by task: what changes, or what is kept of a task that is gone
	RecordTaskResult    QueueRecord = 6  // by task
	RecordTaskAttempt   QueueRecord = 7  // by task and number
	RecordTaskHolder    QueueRecord = 8  // by task: a worker name too long for the state record
	RecordReady         QueueRecord = 9  // by queue, sort key and sequence
	RecordTimer         QueueRecord = 10 // by due time, kind and what is due
	RecordRunning       QueueRecord = 11 // by token
	RecordTerminal      QueueRecord = 12 // by queue, state, end and task
	RecordUnique        QueueRecord = 13 // by queue and unique key; of entries before format 2
	RecordWindow        QueueRecord = 14 // by name of the queue, space and unique key
	RecordRemoved       QueueRecord = 15 // by number: a queue that was removed and still has rows
	RecordWallTimer     QueueRecord = 16 // by wall time and task: a task becomes ready when most wall clocks show that time
	RecordTaskCancel    QueueRecord = 17 // by task: who asked for its cancel, when and why
	RecordExpiry        QueueRecord = 18 // by wall time and task: a task is dead unless it has started when most wall clocks show that time
	RecordLabel         QueueRecord = 19 // by name, value and task: the number of its queue
	RecordTaskReport    QueueRecord = 20 // by task: progress, and what there is of log and checkpoint
	RecordTaskLog       QueueRecord = 21 // by task and number of a line: the lines of one report from that one on
	RecordErrorGroup    QueueRecord = 22 // by queue and fingerprint: a group of errors
	RecordErrors        QueueRecord = 23 // by queue: what is known of its groups of errors
	RecordTaskEffects   QueueRecord = 24 // by task: what its completion did besides
	RecordBulk          QueueRecord = 25 // by id: a bulk job
	RecordCheckpoint    QueueRecord = 26 // by task: what its holders left for the attempts after them
	RecordShare         QueueRecord = 27 // by queue: how far it is shared out
	RecordLane          QueueRecord = 28 // by queue and key: the tasks of one key; those without a key by the limiters that they name, behind a zero byte
	RecordAfter         QueueRecord = 33 // by task and one that waits for it
	RecordBlocked       QueueRecord = 34 // by queue and task that waits for others
	RecordTenantQuota   QueueRecord = 38 // what the tenant may have of tasks, and has in other partitions
	RecordCron          QueueRecord = 30 // by name: a cron without its template
	RecordCronTemplate  QueueRecord = 31 // by name: of the tasks that a cron makes
	RecordCronRun       QueueRecord = 32 // by name of the cron and number: one run
	RecordBatch         QueueRecord = 39 // by id: what never changes about a batch, and its number
	RecordBatchCounts   QueueRecord = 40 // by number of a batch: what changes about it
	RecordBatchTask     QueueRecord = 41 // by number of a batch and task that was added to it
	RecordBatchEnd      QueueRecord = 42 // by end and number of a batch that has finished
	RecordBatches       QueueRecord = 43 // how many batches there are
	RecordLimiter       QueueRecord = 35 // by name: a limiter that tasks of several queues share
)

// Timer says what a row of the timer index is due for. Numbers are stored and never reused.
type Timer byte

// The kinds of timer.
const (
	TimerScheduled Timer = 1  // a task becomes ready
	TimerUnique    Timer = 2  // the window of a unique key ends
	TimerTombstone Timer = 3  // the id of a task that is gone is forgotten
	TimerWindow    Timer = 4  // the window of a unique key ends, which is stored by the name of its queue
	TimerErrors    Timer = 22 // groups of errors of a queue are looked through
	TimerAfter     Timer = 33 // those who wait for a task that has ended are told
	TimerBatch     Timer = 39 // a follow-up of a batch is tried again that was refused
)

// Space tells unique keys from idempotency keys: one text may be both. Numbers are stored and never reused.
type Space byte

// The spaces of unique keys.
const (
	SpaceUnique  Space = 1 // unique.key
	SpaceRequest Space = 2 // Idempotency-Key
)

const queueHead = PartitionLen + 1 + 1

func appendQueue(dst []byte, p core.Partition, r QueueRecord) []byte {
	return append(AppendPartition(dst, p), byte(ServiceQueue), byte(r))
}

// appendTime puts t in eight bytes whose order is the order of time, before the epoch too.
func appendTime(dst []byte, t core.ShardTime) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^1<<63)
}

func decodeTime(b []byte) core.ShardTime {
	return core.ShardTime(binary.BigEndian.Uint64(b) ^ 1<<63)
}

// TenantQuota is the key of what a partition was told of its tenant's tasks.
func TenantQuota(p core.Partition) []byte {
	return End(appendQueue(nil, p, RecordTenantQuota))
}

// AppendQueueMeta appends the key of the partition's own counters.
func AppendQueueMeta(dst []byte, p core.Partition) []byte {
	return End(appendQueue(dst, p, RecordQueueMeta))
}

// AppendQueueConfig appends the key of a queue's number and configuration.
func AppendQueueConfig(dst []byte, p core.Partition, name string) []byte {
	return End(append(appendQueue(dst, p, RecordQueueConfig), name...))
}

// QueueConfigRange bounds the configurations of all queues of p, by name.
func QueueConfigRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordQueueConfig))
}

// DecodeQueueConfig returns the queue's name in a key of AppendQueueConfig.
func DecodeQueueConfig(key []byte) string { return string(Body(key)[queueHead:]) }

// AppendQueueCounters appends the key of a queue's counters.
func AppendQueueCounters(dst []byte, p core.Partition, queue uint32) []byte {
	return End(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordQueueCounters), queue))
}

// QueueCountersRange bounds the counters of all queues, by number.
func QueueCountersRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordQueueCounters))
}

// AppendTaskPayload appends the key of what never changes about a task.
func AppendTaskPayload(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordTaskPayload), id[:]...))
}

// AppendTaskState appends the key of what changes about a task.
func AppendTaskState(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordTaskState), id[:]...))
}

// TaskStateRange bounds the state records of all tasks, by task.
func TaskStateRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordTaskState))
}

// DecodeTaskState returns the task in a key of AppendTaskState.
func DecodeTaskState(key []byte) (id core.TaskID, ok bool) {
	b := Body(key)
	if len(b) != queueHead+16 {
		return id, false
	}
	return core.TaskID(b[queueHead:]), true
}

// AppendTaskResult appends the key of a task's result.
func AppendTaskResult(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordTaskResult), id[:]...))
}

// AppendTaskAttempt appends the key of one attempt of a task, from number 1; 0: of what is known of those whose records are gone.
func AppendTaskAttempt(dst []byte, p core.Partition, id core.TaskID, number uint32) []byte {
	dst = append(appendQueue(dst, p, RecordTaskAttempt), id[:]...)
	return End(binary.BigEndian.AppendUint32(dst, number))
}

// TaskAttemptRange bounds the attempts of a task, by number, from 1.
func TaskAttemptRange(p core.Partition, id core.TaskID) (from, to []byte) {
	_, to = Range(append(appendQueue(nil, p, RecordTaskAttempt), id[:]...))
	return AppendTaskAttempt(nil, p, id, 1), to
}

// AppendTaskHolder appends the key of the name of a task's worker, when that is long.
func AppendTaskHolder(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordTaskHolder), id[:]...))
}

// AppendReady appends the key of a ready task's place: smaller sort first, then smaller sequence.
func AppendReady(dst []byte, p core.Partition, queue uint32, sort, seq uint64) []byte {
	dst = binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordReady), queue)
	return End(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, sort), seq))
}

// lanePlaces comes before the places of the lanes of keys, after those of tasks without a key: no sort key begins with it.
const lanePlaces = 0xff

// AppendPlace appends the key of a ready task's place in a lane; 0 is that of tasks without a key, as AppendReady has it.
func AppendPlace(dst []byte, p core.Partition, queue uint32, lane, sort, seq uint64) []byte {
	if lane == 0 {
		return AppendReady(dst, p, queue, sort, seq)
	}
	dst = appendLanePlaces(dst, p, queue, lane)
	return End(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, sort), seq))
}

func appendLanePlaces(dst []byte, p core.Partition, queue uint32, lane uint64) []byte {
	dst = append(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordReady), queue), lanePlaces)
	return binary.BigEndian.AppendUint64(dst, lane)
}

// PlaceRange bounds the places of the ready tasks of one lane.
func PlaceRange(p core.Partition, queue uint32, lane uint64) (from, to []byte) {
	if lane == 0 {
		from, _ = ReadyRange(p, queue)
		return from, End(append(binary.BigEndian.AppendUint32(appendQueue(nil, p, RecordReady), queue), lanePlaces))
	}
	return Range(appendLanePlaces(nil, p, queue, lane))
}

// DecodePlace returns the lane and the place in a key of AppendPlace.
func DecodePlace(key []byte) (lane, sort, seq uint64, ok bool) {
	if len(key) == queueHead+4+16+1 {
		sort, seq, ok = DecodeReady(key)
		return 0, sort, seq, ok
	}
	if len(key) != queueHead+4+1+24+1 || key[queueHead+4] != lanePlaces {
		return 0, 0, 0, false
	}
	b := key[queueHead+5:]
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), true
}

// AppendShare appends the key of how far a queue is shared out.
func AppendShare(dst []byte, p core.Partition, queue uint32) []byte {
	return End(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordShare), queue))
}

// ShareRange bounds how far the queues of p are shared out, by queue.
func ShareRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordShare))
}

// AppendLane appends the key of the record of a queue's lane.
func AppendLane(dst []byte, p core.Partition, queue uint32, key string) []byte {
	return End(append(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordLane), queue), key...))
}

// LaneRange bounds the lanes of a queue, by key.
func LaneRange(p core.Partition, queue uint32) (from, to []byte) {
	return Range(binary.BigEndian.AppendUint32(appendQueue(nil, p, RecordLane), queue))
}

// DecodeLane returns the tasks' key in a key of AppendLane.
func DecodeLane(key []byte) string { return string(Body(key)[queueHead+4:]) }

// ReadyRange bounds the places of a queue's ready tasks, those of tasks without a key first, and then lane by lane.
func ReadyRange(p core.Partition, queue uint32) (from, to []byte) {
	return Range(binary.BigEndian.AppendUint32(appendQueue(nil, p, RecordReady), queue))
}

// DecodeReady returns the place in a key of AppendReady.
func DecodeReady(key []byte) (sort, seq uint64, ok bool) {
	if len(key) != queueHead+4+16+1 {
		return 0, 0, false
	}
	b := key[queueHead+4:]
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), true
}

func appendTimer(dst []byte, p core.Partition, due core.ShardTime, kind Timer) []byte {
	return append(appendTime(appendQueue(dst, p, RecordTimer), due), byte(kind))
}

// AppendTaskTimer appends the key of a timer of a task: of kind TimerScheduled or TimerTombstone.
func AppendTaskTimer(dst []byte, p core.Partition, due core.ShardTime, kind Timer, id core.TaskID) []byte {
	return End(append(appendTimer(dst, p, due, kind), id[:]...))
}

// AppendUniqueTimer appends the key of the end of a unique key's window.
func AppendUniqueTimer(dst []byte, p core.Partition, due core.ShardTime, queue uint32, unique string) []byte {
	dst = binary.BigEndian.AppendUint32(appendTimer(dst, p, due, TimerUnique), queue)
	return End(append(dst, unique...))
}

// TimerRange bounds the timers due in [from, to).
func TimerRange(p core.Partition, from, to core.ShardTime) (lo, hi []byte) {
	return timesOf(p, RecordTimer, from, to)
}

// timesOf bounds the rows of an index by time in [from, to).
func timesOf(p core.Partition, index QueueRecord, from, to core.ShardTime) (lo, hi []byte) {
	return End(appendTime(appendQueue(nil, p, index), from)), End(appendTime(appendQueue(nil, p, index), to))
}

// timesFrom bounds the rows of an index by time at or after from.
func timesFrom(p core.Partition, index QueueRecord, from core.ShardTime) (lo, hi []byte) {
	_, hi = Range(appendQueue(nil, p, index))
	return End(appendTime(appendQueue(nil, p, index), from)), hi
}

// TimerRangeAll bounds all timers due at or after from.
func TimerRangeAll(p core.Partition, from core.ShardTime) (lo, hi []byte) {
	return timesFrom(p, RecordTimer, from)
}

// DecodeTimer returns what a timer's key says; rest is a task id, or a queue's number and a unique key.
func DecodeTimer(key []byte) (due core.ShardTime, kind Timer, rest []byte, ok bool) {
	if len(key) < queueHead+8+1+1 {
		return 0, 0, nil, false
	}
	b := Body(key)[queueHead:]
	if len(b) < 9 {
		return 0, 0, nil, false
	}
	return decodeTime(b), Timer(b[8]), b[9:], true
}

// AppendWallTimer appends the key of a task's timer that is due when most wall clocks show at.
func AppendWallTimer(dst []byte, p core.Partition, at core.ShardTime, id core.TaskID) []byte {
	return End(append(appendTime(appendQueue(dst, p, RecordWallTimer), at), id[:]...))
}

// WallTimerRange bounds the timers by wall clock due in [from, to).
func WallTimerRange(p core.Partition, from, to core.ShardTime) (lo, hi []byte) {
	return timesOf(p, RecordWallTimer, from, to)
}

// WallTimerRangeAll bounds all timers by wall clock due at or after from.
func WallTimerRangeAll(p core.Partition, from core.ShardTime) (lo, hi []byte) {
	return timesFrom(p, RecordWallTimer, from)
}

// DecodeWallTimer returns the time and task in a key of AppendWallTimer.
func DecodeWallTimer(key []byte) (at core.ShardTime, id core.TaskID, ok bool) {
	return decodeTimeTask(key, RecordWallTimer)
}

// decodeTimeTask returns the time and task in a key of an index by both.
func decodeTimeTask(key []byte, index QueueRecord) (at core.ShardTime, id core.TaskID, ok bool) {
	if len(key) != queueHead+8+16+1 || QueueRecord(key[queueHead-1]) != index {
		return 0, id, false
	}
	b := key[queueHead:]
	return decodeTime(b), core.TaskID(b[8:24]), true
}

// AppendTaskCancel appends the key of who asked for a task's cancel, when and why.
func AppendTaskCancel(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordTaskCancel), id[:]...))
}

// AppendExpiry appends the key of the expiry of a task that has not started: when most wall clocks show at.
func AppendExpiry(dst []byte, p core.Partition, at core.ShardTime, id core.TaskID) []byte {
	return End(append(appendTime(appendQueue(dst, p, RecordExpiry), at), id[:]...))
}

// ExpiryRange bounds the expiries in [from, to).
func ExpiryRange(p core.Partition, from, to core.ShardTime) (lo, hi []byte) {
	return timesOf(p, RecordExpiry, from, to)
}

// ExpiryRangeAll bounds all expiries at or after from.
func ExpiryRangeAll(p core.Partition, from core.ShardTime) (lo, hi []byte) {
	return timesFrom(p, RecordExpiry, from)
}

// DecodeExpiry returns the time and task in a key of AppendExpiry.
func DecodeExpiry(key []byte) (at core.ShardTime, id core.TaskID, ok bool) {
	return decodeTimeTask(key, RecordExpiry)
}

// appendLabel appends what a label's rows begin with. Neither name nor value has a zero byte, so that none of two labels begins
// the rows of the other.
func appendLabel(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), 0)
	return append(append(dst, value...), 0)
}

// AppendLabel appends the key of a label of a task.
func AppendLabel(dst []byte, p core.Partition, name, value string, id core.TaskID) []byte {
	return End(append(appendLabel(appendQueue(dst, p, RecordLabel), name, value), id[:]...))
}

// LabelRange bounds the tasks with a label, in order of their ids, which is about that of their creation.
func LabelRange(p core.Partition, name, value string) (from, to []byte) {
	return Range(appendLabel(appendQueue(nil, p, RecordLabel), name, value))
}

// DecodeLabel returns the task in a key of AppendLabel.
func DecodeLabel(key []byte) (id core.TaskID, ok bool) {
	b := Body(key)
	if len(b) < queueHead+2+16 {
		return id, false
	}
	return core.TaskID(b[len(b)-16:]), true
}

// AppendTaskEffects appends the key of what a task's completion did besides.
func AppendTaskEffects(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordTaskEffects), id[:]...))
}

// AppendTaskReport appends the key of what a task's holders told of their work.
func AppendTaskReport(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordTaskReport), id[:]...))
}

// AppendCheckpoint appends the key of a task's checkpoint.
func AppendCheckpoint(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordCheckpoint), id[:]...))
}

// AppendTaskLog appends the key of the lines of one report of a task; number is that of the first one.
func AppendTaskLog(dst []byte, p core.Partition, id core.TaskID, number uint64) []byte {
	dst = append(appendQueue(dst, p, RecordTaskLog), id[:]...)
	return End(binary.BigEndian.AppendUint64(dst, number))
}

// TaskLogRange bounds the lines of a task's reports whose first line has at least this number.
func TaskLogRange(p core.Partition, id core.TaskID, number uint64) (from, to []byte) {
	_, to = Range(append(appendQueue(nil, p, RecordTaskLog), id[:]...))
	return AppendTaskLog(nil, p, id, number), to
}

// DecodeTaskLog returns the number in a key of AppendTaskLog.
func DecodeTaskLog(key []byte) uint64 {
	b := Body(key)
	if len(b) != queueHead+16+8 {
		return 0
	}
	return binary.BigEndian.Uint64(b[queueHead+16:])
}

// AppendBulk appends the key of a bulk job.
func AppendBulk(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordBulk), id[:]...))
}

// BulkRange bounds the bulk jobs of p, by id.
func BulkRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordBulk))
}

// AppendCron appends the key of a cron.
func AppendCron(dst []byte, p core.Partition, name string) []byte {
	return End(append(appendQueue(dst, p, RecordCron), name...))
}

// CronRange bounds the crons of p, by name.
func CronRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordCron))
}

// DecodeCron returns the name in a key of AppendCron.
func DecodeCron(key []byte) string { return string(Body(key)[queueHead:]) }

// AppendCronTemplate appends the key of the template of a cron's tasks.
func AppendCronTemplate(dst []byte, p core.Partition, name string) []byte {
	return End(append(appendQueue(dst, p, RecordCronTemplate), name...))
}

// appendCronRuns appends what the keys of a cron's runs begin with. Names have no zero byte, so that none begins another one's.
func appendCronRuns(dst []byte, p core.Partition, name string) []byte {
	return append(append(appendQueue(dst, p, RecordCronRun), name...), 0)
}

// AppendCronRun appends the key of one run of a cron.
func AppendCronRun(dst []byte, p core.Partition, name string, number uint64) []byte {
	return End(binary.BigEndian.AppendUint64(appendCronRuns(dst, p, name), number))
}

// CronRunRange bounds the runs of a cron, by number.
func CronRunRange(p core.Partition, name string) (from, to []byte) {
	return Range(appendCronRuns(nil, p, name))
}

// AppendBatch appends the key of what never changes about a batch.
func AppendBatch(dst []byte, p core.Partition, id core.TaskID) []byte {
	return End(append(appendQueue(dst, p, RecordBatch), id[:]...))
}

// AppendBatchCounts appends the key of what changes about a batch.
func AppendBatchCounts(dst []byte, p core.Partition, number uint64) []byte {
	return End(binary.BigEndian.AppendUint64(appendQueue(dst, p, RecordBatchCounts), number))
}

// BatchCountsRange bounds what changes about the batches of p, by number.
func BatchCountsRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordBatchCounts))
}

// DecodeBatchCounts returns the number in a key of AppendBatchCounts.
func DecodeBatchCounts(key []byte) (number uint64, ok bool) {
	if len(key) != queueHead+8+1 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[queueHead:]), true
}

// AppendBatchTask appends the key of a task of a batch.
func AppendBatchTask(dst []byte, p core.Partition, number uint64, id core.TaskID) []byte {
	return End(append(binary.BigEndian.AppendUint64(appendQueue(dst, p, RecordBatchTask), number), id[:]...))
}

// BatchTaskRange bounds the tasks of a batch, by task.
func BatchTaskRange(p core.Partition, number uint64) (from, to []byte) {
	return Range(binary.BigEndian.AppendUint64(appendQueue(nil, p, RecordBatchTask), number))
}

// DecodeBatchTask returns the task in a key of AppendBatchTask.
func DecodeBatchTask(key []byte) (id core.TaskID, ok bool) {
	if len(key) != queueHead+8+16+1 {
		return id, false
	}
	return core.TaskID(key[queueHead+8 : queueHead+24]), true
}

// AppendBatchEnd appends the key of the end of a batch.
func AppendBatchEnd(dst []byte, p core.Partition, end core.ShardTime, number uint64) []byte {
	return End(binary.BigEndian.AppendUint64(appendTime(appendQueue(dst, p, RecordBatchEnd), end), number))
}

// BatchEndRange bounds the ends of batches at or after from.
func BatchEndRange(p core.Partition, from core.ShardTime) (lo, hi []byte) {
	return timesFrom(p, RecordBatchEnd, from)
}

// DecodeBatchEnd returns the end and the number in a key of AppendBatchEnd.
func DecodeBatchEnd(key []byte) (end core.ShardTime, number uint64, ok bool) {
	if len(key) != queueHead+8+8+1 {
		return 0, 0, false
	}
	b := key[queueHead:]
	return decodeTime(b), binary.BigEndian.Uint64(b[8:]), true
}

// AppendBatchTimer appends the key of the timer by which a follow-up of a batch is tried again.
func AppendBatchTimer(dst []byte, p core.Partition, due core.ShardTime, number uint64) []byte {
	return End(binary.BigEndian.AppendUint64(appendTimer(dst, p, due, TimerBatch), number))
}

// DecodeBatchTimer returns the number of the batch in the rest of a timer's key.
func DecodeBatchTimer(rest []byte) (number uint64, ok bool) {
	if len(rest) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(rest), true
}

// Batches is the key of how many batches a partition has.
func Batches(p core.Partition) []byte { return End(appendQueue(nil, p, RecordBatches)) }

// AppendLimiter appends the key of a limiter.
func AppendLimiter(dst []byte, p core.Partition, name string) []byte {
	return End(append(appendQueue(dst, p, RecordLimiter), name...))
}

// LimiterRange bounds the limiters of p, by name.
func LimiterRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordLimiter))
}

// DecodeLimiter returns the name in a key of AppendLimiter.
func DecodeLimiter(key []byte) string { return string(Body(key)[queueHead:]) }

// AppendRunning appends the key of a running task.
func AppendRunning(dst []byte, p core.Partition, token core.Token) []byte {
	return End(binary.BigEndian.AppendUint64(appendQueue(dst, p, RecordRunning), uint64(token)))
}

// RunningRange bounds the running tasks of p, by token.
func RunningRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordRunning))
}

// DecodeRunning returns the token in a key of AppendRunning.
func DecodeRunning(key []byte) (core.Token, bool) {
	if len(key) != queueHead+8+1 {
		return 0, false
	}
	return core.Token(binary.BigEndian.Uint64(key[queueHead:])), true
}

// AppendTerminal appends the key of a task that has ended.
func AppendTerminal(dst []byte, p core.Partition, queue uint32, s core.State, ended core.ShardTime, id core.TaskID) []byte {
	dst = append(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordTerminal), queue), byte(s))
	return End(append(appendTime(dst, ended), id[:]...))
}

// TerminalRange bounds the ended tasks of a queue in one state that ended at or after from, oldest first.
func TerminalRange(p core.Partition, queue uint32, s core.State, from core.ShardTime) (lo, hi []byte) {
	body := append(binary.BigEndian.AppendUint32(appendQueue(nil, p, RecordTerminal), queue), byte(s))
	_, hi = Range(body)
	return End(appendTime(body, from)), hi
}

// DecodeTerminal returns the end and task in a key of AppendTerminal.
func DecodeTerminal(key []byte) (ended core.ShardTime, id core.TaskID, ok bool) {
	if len(key) != queueHead+4+1+8+16+1 {
		return 0, id, false
	}
	b := key[queueHead+5:]
	return decodeTime(b), core.TaskID(b[8:24]), true
}

// AppendUnique appends the key of a unique key's record.
func AppendUnique(dst []byte, p core.Partition, queue uint32, unique string) []byte {
	dst = binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordUnique), queue)
	return End(append(dst, unique...))
}

// UniqueRange bounds the records of a queue's unique keys that are stored by its number.
func UniqueRange(p core.Partition, queue uint32) (from, to []byte) {
	return Range(binary.BigEndian.AppendUint32(appendQueue(nil, p, RecordUnique), queue))
}

// UniqueRangeAll bounds the records of unique keys of all queues that are stored by number.
func UniqueRangeAll(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordUnique))
}

// appendWindow appends what names a window: the queue's name after its length, the space, and the unique key.
func appendWindow(dst []byte, queue string, s Space, unique string) []byte {
	dst = append(append(dst, byte(len(queue))), queue...)
	return append(append(dst, byte(s)), unique...)
}

// AppendWindow appends the key of a unique key's record. It names the queue by its name, of at most 255 bytes, because the
// record outlives the queue.
func AppendWindow(dst []byte, p core.Partition, queue string, s Space, unique string) []byte {
	return End(appendWindow(appendQueue(dst, p, RecordWindow), queue, s, unique))
}

// AppendWindowTimer appends the key of the end of the window of AppendWindow.
func AppendWindowTimer(dst []byte, p core.Partition, due core.ShardTime, queue string, s Space, unique string) []byte {
	return End(appendWindow(appendTimer(dst, p, due, TimerWindow), queue, s, unique))
}

// AppendWindowOf appends the key of AppendWindow for which a timer of kind TimerWindow has the rest.
func AppendWindowOf(dst []byte, p core.Partition, rest []byte) []byte {
	return End(append(appendQueue(dst, p, RecordWindow), rest...))
}

// WindowTail returns the part of a key of AppendWindow that its timer's key ends with.
func WindowTail(key []byte) []byte { return Body(key)[queueHead:] }

// AppendWindowTimerOf appends the key of the timer of the window whose tail is given.
func AppendWindowTimerOf(dst []byte, p core.Partition, due core.ShardTime, tail []byte) []byte {
	return End(append(appendTimer(dst, p, due, TimerWindow), tail...))
}

// AppendRemoved appends the key of a queue that was removed and still has rows.
func AppendRemoved(dst []byte, p core.Partition, queue uint32) []byte {
	return End(binary.BigEndian.AppendUint32(appendQueue(dst, p, RecordRemoved), queue))
}

// RemovedRange bounds the queues that were removed and still have rows, by number.
func RemovedRange(p core.Partition) (from, to []byte) {
	return Range(appendQueue(nil, p, RecordRemoved))
}

// DecodeRemoved returns the number in a key of AppendRemoved.
func DecodeRemoved(key []byte) (uint32, bool) {
	if len(key) != queueHead+4+1 {
		return 0, false
	}
	return binary.BigEndian.Uint32(key[queueHead:]), true
}

// QueueRange bounds all keys of the queue of p.
func QueueRange(p core.Partition) (from, to []byte) {
	return Range(append(AppendPartition(nil, p), byte(ServiceQueue)))
}

// DecodeTaskAttempt returns the number in a key of AppendTaskAttempt.
func DecodeTaskAttempt(key []byte) uint32 {
	b := Body(key)
	if len(b) != queueHead+16+4 {
		return 0
	}
	return binary.BigEndian.Uint32(b[queueHead+16:])
}

// QueueTail returns the part of a key of the queue below partition and service, for a cursor.
func QueueTail(key []byte) []byte { return Body(key)[PartitionLen+1:] }

// QueueAfter returns the first key after the one of p whose tail is given.
func QueueAfter(p core.Partition, tail []byte) []byte {
	dst := append(AppendPartition(nil, p), byte(ServiceQueue))
	return End(append(append(dst, tail...), 0))
}

// QueueAt returns the key of p whose tail is given.
func QueueAt(p core.Partition, tail []byte) []byte {
	return End(append(append(AppendPartition(nil, p), byte(ServiceQueue)), tail...))
}

// QueueRow says what a key of the queue is of; fields that its record does not have are zero.
type QueueRow struct {
	Record QueueRecord
	Task   core.TaskID
	Queue  uint32
	State  byte // RecordTerminal
	// Of RecordErrorGroup.
	Fingerprint uint64
	Name        string // RecordQueueConfig: the queue; RecordUnique: the unique key; RecordLane: the tasks' key; of crons: the cron; RecordLimiter: the limiter
	Run         uint64 // RecordCronRun
	Batch       uint64 // RecordBatchCounts, RecordBatchTask, RecordBatchEnd
}

// ofBatch reads the rest of a key that has the number of a batch.
func (row *QueueRow) ofBatch(b []byte) bool {
	switch {
	case row.Record == RecordBatchCounts && len(b) == 8:
	case row.Record == RecordBatchTask && len(b) == 8+16:
		copy(row.Task[:], b[8:])
	case row.Record == RecordBatchEnd && len(b) == 8+8:
		b = b[8:]
	default:
		return false
	}
	row.Batch = binary.BigEndian.Uint64(b)
	return true
}

// DecodeQueue reads any key of the queue, for those who look at all of them.
func DecodeQueue(key []byte) (row QueueRow, ok bool) {
	_, s, ok := PartitionOf(key)
	b := Body(key)
	if !ok || s != ServiceQueue || len(b) < queueHead {
		return row, false
	}
	row.Record, b = QueueRecord(b[queueHead-1]), b[queueHead:]
	switch row.Record {
	case RecordQueueMeta, RecordTenantQuota, RecordBatches:
		return row, len(b) == 0
	case RecordQueueConfig, RecordCron, RecordCronTemplate, RecordLimiter:
		row.Name = string(b)
		return row, true
	case RecordCronRun:
		if len(b) < 1+9 || b[len(b)-9] != 0 {
			return row, false
		}
		row.Name, row.Run = string(b[:len(b)-9]), binary.BigEndian.Uint64(b[len(b)-8:])
		return row, true
	case RecordTaskPayload, RecordTaskState, RecordTaskResult, RecordTaskHolder, RecordTaskCancel, RecordTaskEffects, RecordBulk,
		RecordTaskReport, RecordCheckpoint, RecordBatch:
		copy(row.Task[:], b)
		return row, len(b) == 16
	case RecordTaskAttempt:
		copy(row.Task[:], b)
		return row, len(b) == 16+4
	case RecordTaskLog:
		copy(row.Task[:], b)
		return row, len(b) == 16+8
	case RecordAfter:
		copy(row.Task[:], b)
		return row, len(b) == 16+16
	case RecordBatchCounts, RecordBatchTask, RecordBatchEnd:
		ok = row.ofBatch(b)
		return row, ok
	case RecordTimer:
		return row, len(b) >= 9
	case RecordWallTimer, RecordExpiry:
		return row, len(b) == 8+16
	case RecordLabel:
		return row, len(b) >= 2+16
	case RecordRunning:
		return row, len(b) == 8
	case RecordWindow:
		return row, len(b) >= 2 && len(b) > 1+int(b[0])
	}
	if len(b) < 4 {
		return row, false
	}
	row.Queue, b = binary.BigEndian.Uint32(b), b[4:]
	switch row.Record {
	case RecordQueueCounters, RecordRemoved, RecordErrors, RecordShare:
		return row, len(b) == 0
	case RecordReady:
		return row, len(b) == 16 || len(b) == 1+24 && b[0] == lanePlaces
	case RecordLane:
		row.Name = string(b)
		return row, len(b) > 0
	case RecordBlocked:
		copy(row.Task[:], b)
		return row, len(b) == 16
	case RecordErrorGroup:
		if len(b) != 8 {
			return row, false
		}
		row.Fingerprint = binary.BigEndian.Uint64(b)
		return row, true
	case RecordTerminal:
		if len(b) != 1+8+16 {
			return row, false
		}
		row.State = b[0]
		copy(row.Task[:], b[9:])
		return row, true
	case RecordUnique:
		row.Name = string(b)
		return row, true
	}
	return row, false
}
