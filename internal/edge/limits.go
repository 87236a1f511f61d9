package edge

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// Limits of this edge. A zero field means its default. Bytes, items and milliseconds say so in their names. Each is checked where
// the thing is counted or read; an error names it by its key in Rows. A limit of a tenant bounds what it may take from others; one
// of the node bounds what the process can hold.
type Limits struct {
	// MessageBytes bounds one gRPC message, also after inflating.
	MessageBytes int64
	// StreamsConnection is how many calls and streams one connection has at once.
	StreamsConnection int64
	// StreamsTenant and StreamsNode bound the streams that are open.
	StreamsTenant int64
	StreamsNode   int64
	// EventStreamsTenant and EventStreamsNode bound the streams of server-sent events that are open, EventTopics the topics of one.
	EventStreamsTenant int64
	EventStreamsNode   int64
	EventTopics        int64
	// CallsTenant and CallsNode bound unary calls, and requests of REST, that are under way.
	CallsTenant int64
	CallsNode   int64
	// ConnectionsNode bounds the connections of all listeners, ConnectionsAddress those of one client address.
	ConnectionsNode    int64
	ConnectionsAddress int64
	// ConnectionsNew bounds those of one client address on which no call was authenticated yet. It is lower, because strangers can
	// open them.
	ConnectionsNew int64
	// FirstCallMs is how long a connection is kept until a call on it is authenticated, or served without a token.
	FirstCallMs int64
	// ReceiveMs is how long a gRPC call may take until its message is there, and a message of a stream once it has begun.
	ReceiveMs int64
	// GRPCIdleMs is how long a gRPC connection is kept that has neither calls nor streams.
	GRPCIdleMs int64
	// HTTP2Frames is how many frames that carry nothing a connection may send in ten seconds, beyond what its answers earn; see
	// frameReader.
	HTTP2Frames int64

	// RESTBodyBytes bounds the body of one request.
	RESTBodyBytes int64
	// RESTBodiesBytes bounds the bodies of all requests that the node holds at once.
	RESTBodiesBytes int64
	// RESTCallMs is how long a request may take, beyond what it asks to wait for.
	RESTCallMs int64
	// HTTPHeaderBytes bounds the request line and the headers together.
	HTTPHeaderBytes int64
	// HTTPHeaderMs and HTTPBodyMs are how long a client may take to send them, and then the body.
	HTTPHeaderMs int64
	HTTPBodyMs   int64
	// HTTPIdleMs is how long a connection is kept between two requests.
	HTTPIdleMs int64
	// HTTPLingerMs is how long a connection is read on after a refusal that left some of the body unread, so that the client sees
	// the answer before the connection is closed.
	HTTPLingerMs int64
	// JSONDepth is how many objects and lists may be within one another.
	JSONDepth int64
	// ResultWaitMs is how long a request may wait for the end of a task.
	ResultWaitMs int64

	// FrameItems is how many items a frame of a stream, or a batch, may have.
	FrameItems int64
	// UnackedItems, UnackedBytes and UnackedCommits bound what of one stream is not acknowledged. At any of them the server stops
	// reading the stream.
	UnackedItems   int64
	UnackedBytes   int64
	UnackedCommits int64
	// SendBytes is how much of one stream may be unsent. Beyond it no tasks are granted to it.
	SendBytes int64
	// SendStallMs is after how long a client is cut off that takes nothing of what is written to it.
	SendStallMs int64
	// Subscriptions is how many a stream may have, Slots how many slots one of them may have.
	Subscriptions int64
	Slots         int64
	// StreamWaits is how many tasks a stream may wait for at once.
	StreamWaits int64

	// Queues is how many a partition of a namespace may have. The node that leads the partition goes by its own limit.
	Queues int64
	// Namespaces is how many a tenant may have. The node that is asked to make one goes by its own limit.
	Namespaces int64
	// ClaimQueues is how many queues a claim or a subscription may name.
	ClaimQueues int64
	// ClaimTasks is how many tasks a claim may take, and one assignment may carry.
	ClaimTasks int64
	// ClaimWaitMs is how long a claim may wait for tasks.
	ClaimWaitMs int64
	// WorkerBytes bounds the name of a worker, and that of its host.
	WorkerBytes int64
	// WorkerKinds is how many kinds of tasks a worker may say that it knows.
	WorkerKinds int64
	// ListItems is the length of a page at most.
	ListItems int64
	// Partitions is how many a namespace may be made with.
	Partitions int64

	// PayloadBytes, ResultBytes and ContentTypeBytes bound the parts of a task that the client fills.
	PayloadBytes     int64
	ResultBytes      int64
	ContentTypeBytes int64
	// Headers is how many headers a task may have, HeaderBytes what all their names and values take together.
	Headers     int64
	HeaderBytes int64
	// Priority is the highest priority of a task; the lowest is 0.
	Priority int64
	// HorizonMs is how far ahead a time may lie, and how long a duration may be that has no limit of its own.
	HorizonMs int64
	// Attempts, Crashes and Deliveries are the highest numbers that a task or queue may name as its own limits.
	Attempts   int64
	Crashes    int64
	Deliveries int64
	// LeaseMs is the longest lease.
	LeaseMs int64
	// RetryFactor is the highest factor by which pauses between attempts grow, RetryAfterMs the longest pause that a worker may ask
	// for when it fails a task.
	RetryFactor  int64
	RetryAfterMs int64
	// UniqueKeyBytes bounds a unique key or an Idempotency-Key.
	UniqueKeyBytes int64
	// TagBytes bounds the tag that places a task or a repository.
	TagBytes int64
	// UniqueTTLMs is the longest time for which a unique key is remembered.
	UniqueTTLMs int64

	// KeyBytes and ValueBytes bound a key of a keyspace and its value.
	KeyBytes   int64
	ValueBytes int64
	// CommitOps bounds the conditions and ops of one commit together, CommitBytes what they take as the log encodes them.
	CommitOps   int64
	CommitBytes int64

	// PointsRequest is how many points an upsert, a deletion or a read may name.
	PointsRequest int64
	// SearchK is how many results a search may ask for.
	SearchK int64
	// SearchCandidates is how many rows a search may have judged at first.
	SearchCandidates int64
	// QueryTextBytes and FilterBytes bound the text that is searched for, and one filter.
	QueryTextBytes int64
	FilterBytes    int64
	// EmbedTexts is how many texts one request may have made into vectors, EmbedBytes what they take together.
	EmbedTexts int64
	EmbedBytes int64
	// EmbedNumbers bounds the numbers of all vectors that calls ask for at the same time; one tenant may have half of it.
	EmbedNumbers int64
	// GateNames bounds the roles, and the credentials, that a gate names, GateIDs its ids.
	GateNames int64
	GateIDs   int64
	// RulesetRules is how many rules a ruleset may have.
	RulesetRules int64
	// SearchTimeoutMs is the longest time that a search may ask for.
	SearchTimeoutMs int64
	// SearchesWaiting is how many searches of all tenants may wait for their turn.
	SearchesWaiting int64
}

// Limit is one row of the table of limits: its key in configuration and in errors, its value, default and hard maximum.
type Limit struct {
	Key     string
	Value   *int64
	Default int64
	Max     int64
}

// Rows lists every limit of l. Key is what an error names.
func (l *Limits) Rows() []Limit {
	return []Limit{
		{"grpc_message", &l.MessageBytes, 4 * mib, 16 * mib},
		{"streams_connection", &l.StreamsConnection, 1000, 100_000},
		{"streams_tenant", &l.StreamsTenant, 10_000, 100_000},
		{"streams_node", &l.StreamsNode, 20_000, 1_000_000},
		{"event_streams_tenant", &l.EventStreamsTenant, 100, 100_000},
		{"event_streams_node", &l.EventStreamsNode, 1000, 100_000},
		{LimitEventTopics, &l.EventTopics, 64, 1000},
		{"calls_tenant", &l.CallsTenant, 2000, 1_000_000},
		{"calls_node", &l.CallsNode, 20_000, 1_000_000},
		{"connections_node", &l.ConnectionsNode, 20_000, 1_000_000},
		{"connections_address", &l.ConnectionsAddress, 2000, 1_000_000},
		{"connections_new", &l.ConnectionsNew, 512, 1_000_000},
		{"first_call_ms", &l.FirstCallMs, 10 * second, hour},
		{"grpc_receive_ms", &l.ReceiveMs, minute, hour},
		{"grpc_idle_ms", &l.GRPCIdleMs, 10 * minute, day},
		{LimitFrames, &l.HTTP2Frames, 10_000, 1_000_000},
		{"rest_body", &l.RESTBodyBytes, 8 * mib, 64 * mib},
		{"rest_bodies", &l.RESTBodiesBytes, 256 * mib, 64 * kib * mib},
		{"rest_call_ms", &l.RESTCallMs, 30 * second, hour},
		{"http_header", &l.HTTPHeaderBytes, 16 * kib, 256 * kib},
		{"http_header_ms", &l.HTTPHeaderMs, 5 * second, minute},
		{"http_body_ms", &l.HTTPBodyMs, minute, hour},
		{"http_idle_ms", &l.HTTPIdleMs, minute, hour},
		{"http_linger_ms", &l.HTTPLingerMs, second, minute},
		{"json_depth", &l.JSONDepth, 64, 1000},
		{"result_wait_ms", &l.ResultWaitMs, minute, hour},
		{"frame_items", &l.FrameItems, 512, 1024},
		{"unacked_items", &l.UnackedItems, 4096, 65_536},
		{"unacked_bytes", &l.UnackedBytes, 16 * mib, 256 * mib},
		{"unacked_commits", &l.UnackedCommits, 64, 64}, // the answers that a session keeps
		{"send_buffer", &l.SendBytes, 4 * mib, 64 * mib},
		{"send_stall_ms", &l.SendStallMs, 60 * second, hour},
		{"subscriptions", &l.Subscriptions, 16, 256},
		{"slots", &l.Slots, 4096, 65_536},
		{"stream_waits", &l.StreamWaits, 4096, 65_536},
		{"queues", &l.Queues, core.DefaultQueues, core.MaxQueues},
		{"namespaces", &l.Namespaces, core.DefaultNamespaces, core.MaxNamespaces},
		{"claim_queues", &l.ClaimQueues, 64, 1024},
		{"claim_tasks", &l.ClaimTasks, 128, 512},
		{"claim_wait_ms", &l.ClaimWaitMs, 60 * second, hour},
		{"worker_bytes", &l.WorkerBytes, 128, 256},
		{"worker_kinds", &l.WorkerKinds, 1000, 10_000},
		{"list_items", &l.ListItems, 1000, 1000},
		{"partitions", &l.Partitions, 4096, 4096}, // what the partition bits of an id can say
		{"payload_bytes", &l.PayloadBytes, mib, mib},
		{"result_bytes", &l.ResultBytes, mib, mib},
		{"content_type_bytes", &l.ContentTypeBytes, 128, 256},
		{"headers", &l.Headers, 32, 64},
		{"header_bytes", &l.HeaderBytes, 4 * kib, 16 * kib},
		{"priority", &l.Priority, 9, 9},
		{"horizon_ms", &l.HorizonMs, 3653 * day, 3653 * day}, // ten years
		{"max_attempts", &l.Attempts, 1000, 1000},
		{"max_crashes", &l.Crashes, 1000, 1000},
		{"max_deliveries", &l.Deliveries, 1_000_000, 1_000_000},
		{"lease_ms", &l.LeaseMs, day, day},
		{"retry_factor", &l.RetryFactor, 100, 100},
		{"retry_after_ms", &l.RetryAfterMs, day, 30 * day},
		{"unique_key_bytes", &l.UniqueKeyBytes, 256, 256},
		{"tag_bytes", &l.TagBytes, 128, 128},
		{"unique_ttl_ms", &l.UniqueTTLMs, 30 * day, 30 * day},
		{"key_bytes", &l.KeyBytes, 16 * kib, 64 * kib},
		{"value_bytes", &l.ValueBytes, 3 * mib / 2, 4*mib - 128*kib}, // fits a commit together with its key
		{"commit_ops", &l.CommitOps, 1024, 1024},
		{"commit_bytes", &l.CommitBytes, 4 * mib, 4 * mib},
		{"points_request", &l.PointsRequest, 1000, 10_000},
		{"search_k", &l.SearchK, 1000, 1000},
		{"search_candidates", &l.SearchCandidates, 20_000, 20_000},
		{"query_text_bytes", &l.QueryTextBytes, 32 * kib, mib},
		{"filter_bytes", &l.FilterBytes, 4 * kib, 4 * kib},
		{"embed_texts", &l.EmbedTexts, 2048, 65_536},
		{"embed_bytes", &l.EmbedBytes, 3 * mib, 64 * mib},
		{"embed_numbers", &l.EmbedNumbers, 16 * mib, 64 * kib * mib},
		{"gate_names", &l.GateNames, 64, 1000},
		{"gate_ids", &l.GateIDs, 10_000, 10_000},
		{"ruleset_rules", &l.RulesetRules, 64, 64},
		{"search_timeout_ms", &l.SearchTimeoutMs, minute, minute},
		{"searches_waiting", &l.SearchesWaiting, 1024, 100_000},
	}
}

// Check refuses what lies outside a limit's own bounds, naming its key.
func (l Limits) Check() error {
	_, err := l.WithDefaults()
	return err
}

// WithDefaults fills zero fields and refuses what lies outside a limit's own bounds, naming its key.
func (l Limits) WithDefaults() (Limits, error) {
	for _, row := range l.Rows() {
		if *row.Value == 0 {
			*row.Value = row.Default
		}
		if *row.Value < 1 || *row.Value > row.Max {
			return l, fmt.Errorf("limit %s: %d is outside 1 to %d", row.Key, *row.Value, row.Max)
		}
	}
	return l, nil
}
