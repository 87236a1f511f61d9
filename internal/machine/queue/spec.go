package queue

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// jsonType is the content type of a payload or result that names none; it is stored as nothing.
const jsonType = "application/json"

// settings are what a task asks for itself. Zero leaves a field to the queue.
type settings struct {
	// Limits of attempts, crashes and deliveries; -1 for deliveries means that they are not limited.
	maxAttempts, maxCrashes, maxDeliveries int32
	// Length of a lease, and of one attempt in all.
	lease, maxRun core.Millis
	// How long it waits after a failure.
	retry core.Retry
}

// spec is what never changes about a task: the payload record. Its content, which is hashed, is
// what the producer sent.
type spec struct {
	// content is the hash of the content; createdAt, createdIdx and creator come from the entry and
	// are not part of it.
	content uint64
	// Stamp and index of the entry that created it.
	createdAt  core.ShardTime
	createdIdx uint64
	// Slices point into the record.
	creator []byte

	// Name of the queue that it was created in.
	queue []byte
	// kind is nil when it is that of the queue.
	kind []byte
	// As it was created, or edited since.
	priority uint8
	// What the task asks for itself.
	settings settings
	// What the task says of sharing; key points into the record.
	key      []byte
	cost     uint32 // 0: 1
	limiters []string
	after    []core.After
	onDep    core.DepFailure
	batch    core.TaskID // zero: none
	// The unique key; nil: none. until says what frees it.
	unique []byte
	until  core.UniqueUntil
	// contentType is nil for JSON.
	contentType []byte
	// In the order in which the producer gave them.
	headers []core.Header
	// What places the task; nil: nothing does.
	tag []byte
	// labels are sorted by name.
	labels []core.Label
	// The rest of the record.
	payload []byte

	// flagsAt, flagsEnd and typeAt are where in the record the flags begin and end, and the content type and what follows it
	// begins: an edit of the task writes these parts again.
	flags                     uint64
	flagsAt, flagsEnd, typeAt int
	// kindEnd is where the kind ends, or the queue where there is none.
	kindEnd int
}

// kindName is the kind as clients see it.
func (s *spec) kindName(queue string) string {
	if s.kind == nil {
		return queue
	}
	return string(s.kind)
}

// typeName is the content type as clients see it.
func (s *spec) typeName() string { return typeName(s.contentType) }

// typeName returns the content type that stored bytes stand for: none means JSON.
func typeName(b []byte) string {
	if len(b) == 0 {
		return jsonType
	}
	return string(b)
}

// The flags say what the content of a record holds beyond queue, priority and payload. They are stored.
const (
	// The kind is not that of the queue.
	specKind uint64 = 1 << iota
	// The producer named a time, or a delay.
	specRunAt
	specDelay
	// Each of the settings has a bit, and its value follows when the bit is set.
	specMaxAttempts
	specMaxCrashes
	specMaxDeliveries
	specLease
	specMaxRun
	specRetry
	// There is a unique key, with its window.
	specUnique
	// The content type is not JSON.
	specType
	// There are headers, or a tag.
	specHeaders
	specTag
	// specRequest says that the unique key names a request.
	specRequest
	// There is a time of expiry, or there are labels.
	specExpires
	specLabels
	// There is a key, a cost, or there are limiters.
	specKey
	specCost
	specLimiters
	// There are tasks that it waits for, with what follows when one of them is not completed.
	specAfter
	// There is a batch.
	specBatch
)

// flags has the bit of each setting that is not zero.
func (s *settings) flags() (f uint64) {
	if s.maxAttempts != 0 {
		f |= specMaxAttempts
	}
	if s.maxCrashes != 0 {
		f |= specMaxCrashes
	}
	if s.maxDeliveries != 0 {
		f |= specMaxDeliveries
	}
	if s.lease != 0 {
		f |= specLease
	}
	if s.maxRun != 0 {
		f |= specMaxRun
	}
	if !s.retry.IsZero() {
		f |= specRetry
	}
	return f
}

// appendSettings appends the settings that are not zero, in the order of their flags.
func appendSettings(b []byte, s *settings) []byte {
	f := s.flags()
	if f == 0 {
		return b
	}
	for _, n := range [...]struct {
		flag  uint64
		value int64
	}{
		{specMaxAttempts, int64(s.maxAttempts)},
		{specMaxCrashes, int64(s.maxCrashes)},
		{specMaxDeliveries, int64(s.maxDeliveries)},
		{specLease, int64(s.lease)},
		{specMaxRun, int64(s.maxRun)},
	} {
		if f&n.flag != 0 {
			b = putInt(b, n.value)
		}
	}
	if f&specRetry != 0 {
		b = appendRetry(b, s.retry)
	}
	return b
}

// settings reads the settings that the flags name.
func (r *reader) settings(f uint64) (s settings) {
	if f&specMaxAttempts != 0 {
		s.maxAttempts = int32(r.int())
	}
	if f&specMaxCrashes != 0 {
		s.maxCrashes = int32(r.int())
	}
	if f&specMaxDeliveries != 0 {
		s.maxDeliveries = int32(r.int())
	}
	if f&specLease != 0 {
		s.lease = core.Millis(r.int())
	}
	if f&specMaxRun != 0 {
		s.maxRun = core.Millis(r.int())
	}
	if f&specRetry != 0 {
		s.retry = r.retry()
	}
	return s
}

// contentFlags are the flags of op's content. What op leaves to defaults has none, so that saying
// the default is the same content.
func contentFlags(op *core.TaskCreate, s *settings) uint64 {
	f := s.flags()
	if op.TaskKind != "" && op.TaskKind != op.Queue {
		f |= specKind
	}
	if op.RunAt != 0 {
		f |= specRunAt
	}
	if op.Delay != 0 {
		f |= specDelay
	}
	if op.Unique.Key != "" {
		f |= specUnique
	}
	if op.Unique.Request {
		f |= specRequest
	}
	if op.ContentType != "" && op.ContentType != jsonType {
		f |= specType
	}
	if len(op.Headers) > 0 {
		f |= specHeaders
	}
	if op.Tag != "" {
		f |= specTag
	}
	if op.ExpiresAt != 0 {
		f |= specExpires
	}
	if len(op.Labels) > 0 {
		f |= specLabels
	}
	if op.Key != "" {
		f |= specKey
	}
	if op.Cost > 1 { // 1 is what a task costs that says nothing
		f |= specCost
	}
	if len(op.Limiters) > 0 {
		f |= specLimiters
	}
	if len(op.After) > 0 {
		f |= specAfter
	}
	if !op.Batch.IsZero() {
		f |= specBatch
	}
	return f
}

// settingsOf returns what an op asks for its task. Bounds and ceilings are judged elsewhere.
func settingsOf(op *core.TaskCreate) settings {
	return settings{
		maxAttempts: op.MaxAttempts, maxCrashes: op.MaxCrashes, maxDeliveries: op.MaxDeliveries,
		lease: op.Lease, maxRun: op.MaxRun, retry: op.Retry,
	}
}

// hashes are of what a task was created with. A repeated create is told by them.
type hashes struct {
	// content is of all of it: a repetition of the task's id has the same.
	content uint64
	// asked is of all but what it says of its unique key: a repetition of that key has the same. 0
	// without a unique key.
	asked uint64
}

// appendSpec appends the payload record of a task that op makes in c, and returns the hashes of its content.
//
// The record begins with the hash, then what the entry says (stamp, index, principal), then the
// content. The hash is put in last, over the content alone. The part about the unique key is
// between two offsets, which the second hash leaves out.
func appendSpec(b []byte, c *core.ApplyContext, op *core.TaskCreate) ([]byte, hashes) {
	start := len(b)
	b = putFixed(append(b, formPayload), 0)
	b = putUint(putInt(b, int64(c.Stamp)), c.Index)
	b = putString(b, c.Principal)
	from := len(b)
	s := settingsOf(op)
	f := contentFlags(op, &s)
	b = append(putUint(b, f), op.Priority)
	b = putString(b, op.Queue)
	if f&specKind != 0 {
		b = putString(b, op.TaskKind)
	}
	if f&specRunAt != 0 {
		b = putInt(b, int64(op.RunAt))
	}
	if f&specDelay != 0 {
		b = putInt(b, int64(op.Delay))
	}
	b = appendSettings(b, &s)
	b = appendShare(b, f, op)
	unique := len(b)
	if f&specUnique != 0 {
		b = putInt(putString(b, op.Unique.Key), int64(op.Unique.TTL))
		b = append(b, uniqueByte(&op.Unique))
	}
	rest := len(b)
	if f&specType != 0 {
		b = putString(b, op.ContentType)
	}
	if f&specHeaders != 0 {
		b = putUint(b, uint64(len(op.Headers)))
		for _, h := range op.Headers {
			b = putString(putString(b, h.Name), h.Value)
		}
	}
	if f&specTag != 0 {
		b = putString(b, op.Tag)
	}
	if f&specExpires != 0 {
		b = putInt(b, int64(op.ExpiresAt))
	}
	if f&specLabels != 0 {
		b = appendLabels(b, op.Labels)
	}
	b = append(b, op.Payload...)
	h := hashes{content: hash(b[from:])}
	if f&specUnique != 0 {
		var d xxhash.Digest
		d.Reset()
		_, _ = d.Write(b[from:unique]) // never fails
		_, _ = d.Write(b[rest:])
		h.asked = d.Sum64()
	}
	binary.BigEndian.PutUint64(b[start+1:], h.content)
	return b, h
}

// The byte after a unique key and its time to live has what else was asked of it: two bits, and what frees the key above them.
const (
	uniqueReject byte = 1 << iota
	uniqueReplace
	uniqueUntil // the lowest bit of a core.UniqueUntil
)

// uniqueByte puts that byte together.
func uniqueByte(u *core.Unique) byte {
	b := byte(u.Until) * uniqueUntil
	if u.Reject {
		b |= uniqueReject
	}
	if u.Replace {
		b |= uniqueReplace
	}
	return b
}

// appendShare writes what a create says of sharing, by its flags.
func appendShare(b []byte, f uint64, op *core.TaskCreate) []byte {
	if f&specKey != 0 {
		b = putString(b, op.Key)
	}
	if f&specCost != 0 {
		b = putUint(b, uint64(op.Cost))
	}
	if f&specLimiters != 0 {
		b = putUint(b, uint64(len(op.Limiters)))
		for _, name := range op.Limiters {
			b = putString(b, name)
		}
	}
	if f&specAfter != 0 {
		b = putUint(append(b, byte(op.OnDepFailure)), uint64(len(op.After)))
		for _, a := range op.After {
			var terminal byte
			if a.Terminal {
				terminal = 1
			}
			b = append(append(b, a.Task[:]...), terminal)
		}
	}
	if f&specBatch != 0 {
		b = append(b, op.Batch[:]...)
	}
	return b
}

// share reads what appendShare wrote. Counts are checked as that of headers is.
func (r *reader) share(f uint64, s *spec) {
	if f&specKey != 0 {
		s.key = r.bytes(r.uint())
	}
	if f&specCost != 0 {
		s.cost = r.u32()
	}
	if f&specLimiters != 0 {
		n := r.uint()
		if n > uint64(len(r.b)) {
			r.fail()
			return
		}
		s.limiters = make([]string, n)
		for i := range s.limiters {
			s.limiters[i] = r.string()
		}
	}
	if f&specAfter != 0 {
		s.onDep = core.DepFailure(r.byte())
		n := r.uint()
		if n > uint64(len(r.b)) {
			r.fail()
			return
		}
		s.after = make([]core.After, n)
		for i := range s.after {
			s.after[i] = core.After{Task: r.id(), Terminal: r.byte() != 0}
		}
	}
	if f&specBatch != 0 {
		s.batch = r.id()
	}
}

// specSize bounds the length of what appendSpec appends: the fixed part with room to spare, and
// everything of variable length.
func specSize(c *core.ApplyContext, op *core.TaskCreate) int {
	n := 160 + len(c.Principal) + len(op.Queue) + len(op.TaskKind) + len(op.Unique.Key) + len(op.ContentType) + len(op.Tag) +
		len(op.Payload)
	for _, h := range op.Headers {
		n += 20 + len(h.Name) + len(h.Value)
	}
	for _, l := range op.Labels {
		n += 20 + len(l.Name) + len(l.Value)
	}
	for _, name := range op.Limiters {
		n += 10 + len(name)
	}
	return n + len(op.Key) + 17*len(op.After) + len(op.Batch)
}

// specContent reads only the hash of a payload record's content.
func specContent(b []byte) (uint64, error) {
	r := read(b, formPayload)
	content := r.fixed()
	if r.bad {
		return 0, errs.Corruptf("payload record makes no sense")
	}
	return content, nil
}

// decodeSpec reads a payload record; what it returns points into b.
func decodeSpec(b []byte) (s spec, err error) {
	r := read(b, formPayload)
	s.content = r.fixed()
	s.createdAt, s.createdIdx = core.ShardTime(r.int()), r.uint()
	s.creator = r.bytes(r.uint())
	s.flagsAt = len(b) - len(r.b)
	f := r.uint()
	s.flags, s.flagsEnd = f, len(b)-len(r.b)
	s.priority = r.byte()
	s.queue = r.bytes(r.uint())
	if f&specKind != 0 {
		s.kind = r.bytes(r.uint())
	}
	s.kindEnd = len(b) - len(r.b)
	if f&specRunAt != 0 {
		r.int()
	}
	if f&specDelay != 0 {
		r.int()
	}
	s.settings = r.settings(f)
	r.share(f, &s)
	if f&specUnique != 0 {
		s.unique = r.bytes(r.uint())
		r.int()
		s.until = core.UniqueUntil(r.byte() / uniqueUntil)
	}
	s.typeAt = len(b) - len(r.b)
	if f&specType != 0 {
		s.contentType = r.bytes(r.uint())
	}
	if f&specHeaders != 0 {
		s.headers = r.headers()
	}
	if f&specTag != 0 {
		s.tag = r.bytes(r.uint())
	}
	if f&specExpires != 0 {
		r.int()
	}
	if f&specLabels != 0 {
		s.labels = r.labels()
	}
	if r.bad {
		return s, errs.Corruptf("payload record makes no sense")
	}
	s.payload = r.b
	return s, nil
}

// headers reads a list of headers. The count is checked against what is left, so that a damaged
// record cannot ask for much memory.
func (r *reader) headers() []core.Header {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	out := make([]core.Header, n)
	for i := range out {
		out[i] = core.Header{Name: r.string(), Value: r.string()}
	}
	return out
}

// appendLabels writes the number of labels and the labels.
func appendLabels(b []byte, labels []core.Label) []byte {
	b = putUint(b, uint64(len(labels)))
	for _, l := range labels {
		b = putString(putString(b, l.Name), l.Value)
	}
	return b
}

// labels reads what appendLabels wrote. The count is checked as that of headers is.
func (r *reader) labels() []core.Label {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	out := make([]core.Label, n)
	for i := range out {
		out[i] = core.Label{Name: r.string(), Value: r.string()}
	}
	return out
}

// appendEdited appends the payload record b, of which s was read, with the content type, labels and payload that s has now. The
// rest stays as the producer sent it, the hash of what that was too: a repetition of the create is told by it.
func appendEdited(dst, b []byte, s *spec) []byte {
	f := s.flags &^ (specType | specLabels)
	if len(s.contentType) > 0 {
		f |= specType
	}
	if len(s.labels) > 0 {
		f |= specLabels
	}
	dst = putUint(append(dst, b[:s.flagsAt]...), f)
	dst = append(dst, b[s.flagsEnd:s.typeAt]...)
	if f&specType != 0 {
		dst = putString(dst, string(s.contentType))
	}
	if f&specHeaders != 0 {
		dst = putUint(dst, uint64(len(s.headers)))
		for _, h := range s.headers {
			dst = putString(putString(dst, h.Name), h.Value)
		}
	}
	if f&specTag != 0 {
		dst = putString(dst, string(s.tag))
	}
	if f&specExpires != 0 {
		dst = putInt(dst, 0) // the state record says when the task expires
	}
	if f&specLabels != 0 {
		dst = appendLabels(dst, s.labels)
	}
	return append(dst, s.payload...)
}

// appendMoved appends the payload record b, of which s was read, for a task that goes to another queue, or has another payload. Its kind
// stays, and the hash by which a repetition of its create is told.
func appendMoved(dst, b []byte, s *spec, queue string, payload []byte) []byte {
	kind := s.kindName(string(s.queue))
	f := s.flags &^ specKind
	if kind != queue {
		f |= specKind
	}
	dst = putUint(append(dst, b[:s.flagsAt]...), f)
	dst = putString(append(dst, b[s.flagsEnd]), queue)
	if kind != queue {
		dst = putString(dst, kind)
	}
	dst = append(dst, b[s.kindEnd:len(b)-len(s.payload)]...)
	return append(dst, payload...)
}

// carried is what the row of a running task holds of its payload record, so that no settle reads that record.
type carried struct {
	// The id of the task, and the number of its queue.
	task  core.TaskID
	queue uint32
	// content is the hash of the task's content.
	content uint64
	// payload is the length of its payload.
	payload uint64
	// What it asks for itself.
	settings settings
	// labels says that the task has labels.
	labels bool
}

// appendCarried writes the row. Its flags are those of a payload record, of settings and labels alone.
func appendCarried(b []byte, c *carried) []byte {
	b = append(append(b, formRunning), c.task[:]...)
	b = putFixed(putUint(b, uint64(c.queue)), c.content)
	f := c.settings.flags()
	if c.labels {
		f |= specLabels
	}
	b = putUint(putUint(b, c.payload), f)
	return appendSettings(b, &c.settings)
}

// decodeCarried reads what appendCarried wrote.
func decodeCarried(b []byte) (c carried, err error) {
	r := read(b, formRunning)
	c.task, c.queue, c.content, c.payload = r.id(), r.u32(), r.fixed(), r.uint()
	f := r.uint()
	c.settings, c.labels = r.settings(f), f&specLabels != 0
	return c, r.done("running task")
}
