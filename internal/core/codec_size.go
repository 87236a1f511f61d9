package core

// Upper bounds, in bytes, of what the encoding of one part takes besides its texts, names and payloads.
const (
	varintBytes = 10 // the longest varint
	nameBytes   = 5  // the reference to a name, or the length of a text: entries are far below 4 GiB
	// A name that the entry has not yet: its number and the length of its text.
	newName = 2 * nameBytes
	// A lease: the id of its task and its token.
	holdBytes = 16 + varintBytes
	// All of a commit but its ops, its conditions and the text of its principal.
	commitHeader = 1 + 3*nameBytes + newName + 16 + 16 + varintBytes + holdBytes + 2*nameBytes
	// The kind of an op, its presence bits and one name, without the text of the name.
	opHeader = 3 + newName
	// A policy for retries: its shape and three numbers.
	retryBytes = 1 + 3*varintBytes
)

// EncodedSize returns an upper bound of the bytes that c takes in an entry, whatever stands before it: within about
// 100 bytes of the truth for a commit of few ops.
func (c *Commit) EncodedSize() int {
	n := commitHeader + len(c.Principal)
	for _, check := range c.Conditions {
		n += opSize(check)
	}
	for _, op := range c.Ops {
		n += opSize(op)
	}
	return n
}

// opSize returns an upper bound of the bytes that op takes. What grows with texts, payloads or lists has a case; all
// others are below the size at the end. A bound that is too low would let an entry pass its limit.
func opSize(op Op) int {
	switch op := op.(type) {
	case *TaskCreate:
		n := opHeader + 16 + len(op.Queue) + 9*varintBytes + retryBytes
		n += newName + len(op.TaskKind) + newName + len(op.ContentType) + nameBytes + len(op.Payload) + nameBytes + len(op.Tag)
		n += nameBytes + len(op.Unique.Key) + varintBytes + 1 + nameBytes
		for _, h := range op.Headers {
			n += newName + len(h.Name) + nameBytes + len(h.Value)
		}
		for _, name := range op.Limiters {
			n += newName + len(name)
		}
		n += nameBytes + len(op.Key) + 2*nameBytes + 17*len(op.After) + 4*varintBytes + 17
		return n + 1 + varintBytes + labelsSize(op.Labels)
	case *TaskCancel, *TaskStop, *TaskUpdate, *QueuePause:
		return controlOpSize(op)
	case *BulkStart:
		return bulkStartSize(op)
	case *CronSet, *CronDelete, *CronFire:
		return cronOpSize(op)
	case *BatchOpen, *BatchSeal, *BatchCancel:
		return batchOpSize(op)
	case *LimiterSet, *LimiterDelete:
		return limiterOpSize(op)
	case *TaskComplete:
		return opHeader + holdBytes + nameBytes + len(op.Result) + newName + len(op.ResultType)
	case *TaskFail:
		return opHeader + holdBytes + varintBytes + 3*nameBytes + len(op.Error.Code) + len(op.Error.Message) +
			len(op.Error.Stack)
	case *TaskRenew:
		return opHeader + varintBytes + nameBytes + len(op.Items)*holdBytes
	case *TaskReport:
		return reportSize(op)
	case *SessionLost:
		return opHeader + 16 + nameBytes + len(op.Leases)*seenBytes
	case *QueueSet:
		n := opHeader + len(op.Queue) + 37*varintBytes + retryBytes + newName + len(op.Config.Share.DeadLetter)
		for _, name := range op.Config.Share.LimiterNames() {
			n += newName + len(name)
		}
		return n
	case *KeySet:
		return opHeader + len(op.Queue) + nameBytes + len(op.Key) + 8*varintBytes + nameBytes + len(op.Reason)
	case *QueueDelete:
		return opHeader + newName + len(op.Queue) + 1 + varintBytes
	case *Grant:
		n := opHeader + 16 + 3*varintBytes + newName + len(op.Worker) + 2*nameBytes + len(op.Settles)*holdBytes
		for _, q := range op.Queues {
			n += newName + len(q.Name) + nameBytes
		}
		return n
	}
	n := 0
	switch op.Kind().Service() {
	case ServiceKV:
		n = kvOpSize(op)
	case ServiceSearch:
		n = searchOpSize(op)
	case ServiceRefs:
		n = refOpSize(op)
	default:
		n = shardOpSize(op)
	}
	if n == 0 { // an op of fixed size: ids, tokens, times
		n = opHeader + holdBytes + 4*varintBytes
	}
	return n
}

// shardOpSize is opSize of the ops of the shard itself that have texts; 0 for an op of fixed size.
func shardOpSize(op Op) int {
	switch op := op.(type) {
	case *NamespaceCreate:
		return opHeader + newName + len(op.Tenant) + len(op.Name) + 2*varintBytes
	case *NamespaceRemove:
		return opHeader + 1 + newName + len(op.Tenant) + newName + len(op.Name) + 2*varintBytes
	case *SessionKeyAdd:
		return opHeader + varintBytes + len(op.Secret) + 1
	case *TenantSet:
		return opHeader + len(op.Tenant) + 1 + 11*varintBytes
	}
	return memberOpSize(op)
}
