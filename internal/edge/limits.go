package edge

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// Limits of this edge. A zero field means its default. Bytes, items and milliseconds say so in their names.
type Limits struct {
	MessageBytes       int64 // one gRPC message, also after inflating
	StreamsConnection  int64 // calls and streams of one connection at once
	StreamsTenant      int64
	StreamsNode        int64
	CallsTenant        int64 // unary calls in flight
	CallsNode          int64
	ConnectionsNode    int64
	ConnectionsAddress int64 // of one client address
	ConnectionsNew     int64 // of one client address, on which no call was authenticated yet
	FirstCallMs        int64 // until a call on a connection is authenticated, or served without a token
	ReceiveMs          int64 // until a gRPC call's message is there, or that of a stream once it has begun
	GRPCIdleMs         int64 // of a gRPC connection without calls and streams
	HTTP2Frames        int64 // of a connection in ten seconds that carry nothing, besides what its answers earn; see frameReader

	RESTBodyBytes   int64 // of one request
	RESTBodiesBytes int64 // of all requests that the node holds at once
	RESTCallMs      int64 // how long a request may take, besides what it asks to wait for
	HTTPHeaderBytes int64 // request line and headers
	HTTPHeaderMs    int64 // until they are there
	HTTPBodyMs      int64 // until the body is there
	HTTPIdleMs      int64 // of a connection between two requests
	HTTPLingerMs    int64 // that a connection is read on after a refusal which left some of the body unread
	JSONDepth       int64 // objects and lists within one another
	ResultWaitMs    int64

	FrameItems     int64 // items of a frame, or of a batch
	UnackedItems   int64 // of a stream; beyond it the server stops reading, as with the next two
	UnackedBytes   int64
	UnackedCommits int64
	SendBytes      int64 // unsent in a stream; beyond it no tasks are granted to it
	SendStallMs    int64 // a stream whose reader takes nothing for so long is cut
	Subscriptions  int64 // of a stream
	Slots          int64 // of a subscription

	Queues      int64 // of a partition of a namespace; the node that leads the partition goes by its own
	Namespaces  int64 // of a tenant; the node that is asked to make one goes by its own
	ClaimQueues int64 // queues of a claim or subscription
	ClaimTasks  int64 // tasks of a claim or assignment
	ClaimWaitMs int64
	WorkerBytes int64 // name of a worker, or of its host
	WorkerKinds int64
	ListItems   int64 // of a page
	Partitions  int64 // of a namespace that is made

	PayloadBytes     int64
	ResultBytes      int64
	ContentTypeBytes int64
	Headers          int64
	HeaderBytes      int64 // names and values of all headers of a task
	Priority         int64
	HorizonMs        int64 // how far ahead a time may lie, and how long a duration may be that has no limit of its own
	Attempts         int64
	Crashes          int64
	Deliveries       int64
	LeaseMs          int64
	RetryFactor      int64
	RetryAfterMs     int64
	UniqueKeyBytes   int64
	TagBytes         int64
	UniqueTTLMs      int64

	KeyBytes    int64
	ValueBytes  int64
	CommitOps   int64 // conditions and ops together
	CommitBytes int64 // as the log encodes it

	PointsRequest    int64 // of an upsert, delete or get
	SearchK          int64 // results of a search
	SearchCandidates int64 // that are judged at first
	QueryTextBytes   int64
	FilterBytes      int64
	EmbedTexts       int64 // of one request
	EmbedBytes       int64 // of them all
	EmbedNumbers     int64 // of the vectors that calls ask for at once, in all; of one tenant half of it
	GateNames        int64 // roles, and credentials, of a gate
	GateIDs          int64 // ids that a gate names
	RulesetRules     int64
	SearchTimeoutMs  int64
	SearchesWaiting  int64 // for a turn, in all
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
		{"streams_tenant", &l.StreamsTenant, 1000, 100_000},
		{"streams_node", &l.StreamsNode, 20_000, 1_000_000},
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
