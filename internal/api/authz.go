package api

import (
	"context"
	"fmt"

	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// methods is the only table from a method to who may call it. A method without a row is denied, and keeps a server
// from being made.
var methods = map[string]edge.Rule{
	"/millrace.v1.TaskService/Create":       edge.Needs(auth.TaskCreate),
	"/millrace.v1.TaskService/BatchCreate":  edge.Needs(auth.TaskCreate),
	"/millrace.v1.TaskService/Get":          edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/BatchGet":     edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/ListAttempts": edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/Watch":        edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/List":         edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/Effects":      edge.Needs(auth.TaskRead), // keys by the scopes of their services
	"/millrace.v1.TaskService/Why":          edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/Wait":         edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/Claim":        edge.Needs(auth.TaskWork),
	"/millrace.v1.TaskService/EndClaim":     edge.Needs(auth.TaskWork),
	"/millrace.v1.TaskService/Heartbeat":    edge.Needs(auth.TaskWork),
	"/millrace.v1.TaskService/Report":       edge.Needs(auth.TaskWork),
	"/millrace.v1.TaskService/Logs":         edge.Needs(auth.TaskRead),
	"/millrace.v1.TaskService/Settle":       edge.Needs(auth.TaskWork), // and its effects by the table of ops
	"/millrace.v1.TaskService/RunNow":       operates,
	"/millrace.v1.TaskService/Delete":       edge.Needs(auth.Admin),
	"/millrace.v1.TaskService/Update":       edge.Needs(auth.TaskCreate).OrAny(auth.Admin),
	"/millrace.v1.TaskService/Cancel":       cancels,
	"/millrace.v1.TaskService/Retry":        operates,
	"/millrace.v1.TaskService/ForceRelease": operates,

	"/millrace.v1.CommitService/Commit": edge.AnyToken(), // each op by the table of ops
	// Keys: reading and writing are two rights. A put that asks for the old value needs both.
	"/millrace.v1.KVService/Get":      edge.Needs(auth.KVRead),
	"/millrace.v1.KVService/BatchGet": edge.Needs(auth.KVRead),
	"/millrace.v1.KVService/Range":    edge.Needs(auth.KVRead),

	"/millrace.v1.KVService/Put":         edge.Needs(auth.KVWrite),
	"/millrace.v1.KVService/Delete":      edge.Needs(auth.KVWrite),
	"/millrace.v1.KVService/DeleteRange": edge.Needs(auth.KVWrite),

	// Configuration is an admin's; who uses a thing may read how it is configured.
	"/millrace.v1.KeyspaceService/Set":    edge.Needs(auth.Admin),
	"/millrace.v1.KeyspaceService/Get":    edge.Needs(auth.KVRead),
	"/millrace.v1.KeyspaceService/List":   edge.Needs(auth.KVRead),
	"/millrace.v1.KeyspaceService/Delete": edge.Needs(auth.Admin),

	"/millrace.v1.QueueService/List":            edge.Needs(auth.TaskRead),
	"/millrace.v1.QueueService/Get":             edge.Needs(auth.TaskRead),
	"/millrace.v1.QueueService/Set":             edge.Needs(auth.Admin),
	"/millrace.v1.QueueService/Delete":          edge.Needs(auth.Admin),
	"/millrace.v1.QueueService/Stats":           edge.Needs(auth.TaskRead),
	"/millrace.v1.QueueService/Pause":           operates,
	"/millrace.v1.QueueService/Resume":          operates,
	"/millrace.v1.QueueService/Keys":            edge.Needs(auth.TaskRead),
	"/millrace.v1.QueueService/SetKey":          edge.Needs(auth.Admin),
	"/millrace.v1.QueueService/PauseKey":        operates,
	"/millrace.v1.QueueService/ResumeKey":       operates,
	"/millrace.v1.QueueService/CreateNamespace": edge.Needs(auth.Admin),
	"/millrace.v1.QueueService/DeleteNamespace": edge.Needs(auth.Admin),
	"/millrace.v1.QueueService/GetNamespace":    namespaceRule,
	"/millrace.v1.QueueService/SetNamespace":    edge.Needs(auth.Admin),

	"/millrace.v1.BulkService/Start":   operates, // and to delete, Admin
	"/millrace.v1.BulkService/Redrive": operates,
	"/millrace.v1.BulkService/List":    edge.Needs(auth.TaskRead),
	"/millrace.v1.BulkService/Get":     edge.Needs(auth.TaskRead),
	"/millrace.v1.BulkService/Cancel":  operates,
	// Who sets a cron makes tasks for as long as it is there.
	"/millrace.v1.CronService/List":    edge.Needs(auth.TaskRead),
	"/millrace.v1.CronService/Get":     edge.Needs(auth.TaskRead),
	"/millrace.v1.CronService/Runs":    edge.Needs(auth.TaskRead),
	"/millrace.v1.CronService/Preview": edge.Needs(auth.TaskRead),
	"/millrace.v1.CronService/Set":     edge.Needs(auth.Admin),
	"/millrace.v1.CronService/Delete":  edge.Needs(auth.Admin),
	"/millrace.v1.CronService/Trigger": operates,
	"/millrace.v1.CronService/Pause":   operates,
	"/millrace.v1.CronService/Resume":  operates,
	// A limiter holds up tasks of any queue: who sets one reaches all of them.
	"/millrace.v1.LimiterService/List":   edge.Needs(auth.TaskRead),
	"/millrace.v1.LimiterService/Get":    edge.Needs(auth.TaskRead),
	"/millrace.v1.LimiterService/Set":    edge.Needs(auth.Admin),
	"/millrace.v1.LimiterService/Delete": edge.Needs(auth.Admin),

	"/millrace.v1.BatchService/Open":   edge.Needs(auth.TaskCreate),
	"/millrace.v1.BatchService/List":   edge.Needs(auth.TaskRead),
	"/millrace.v1.BatchService/Get":    edge.Needs(auth.TaskRead),
	"/millrace.v1.BatchService/Wait":   edge.Needs(auth.TaskRead),
	"/millrace.v1.BatchService/Seal":   edge.Needs(auth.TaskCreate),
	"/millrace.v1.BatchService/Cancel": operates,

	"/millrace.v1.ErrorService/List":       edge.Needs(auth.TaskRead),
	"/millrace.v1.OverviewService/Get":     edge.Needs(auth.TaskRead), // nodes, tokens and keyspaces by their own scopes
	"/millrace.v1.OverviewService/History": edge.Needs(auth.TaskRead), // of a node: Cluster too
	"/millrace.v1.WorkerService/List":      edge.Needs(auth.TaskRead),
	"/millrace.v1.WorkerService/Quiet":     operates,

	// Bounds of tenants are set by an operator, and may be read by the tenant's admin.
	"/millrace.v1.TenantService/Get": edge.Needs(auth.Admin).OrAny(auth.TenantAdmin), // of another: tenant:admin only
	"/millrace.v1.TenantService/Set": edge.Needs(auth.TenantAdmin),

	// Of refs, making a repository is a right of its own: pushes of git may have it.
	"/millrace.v1.RefService/CreateRepo":   edge.Needs(auth.RefCreate),
	"/millrace.v1.RefService/GetRepo":      edge.Needs(auth.RefRead),
	"/millrace.v1.RefService/ListRepos":    edge.Needs(auth.RefRead),
	"/millrace.v1.RefService/UpdateRepo":   edge.Needs(auth.RefAdmin),
	"/millrace.v1.RefService/DeleteRepo":   edge.Needs(auth.RefAdmin),
	"/millrace.v1.RefService/UndeleteRepo": edge.Needs(auth.RefAdmin),
	"/millrace.v1.RefService/GetRef":       edge.Needs(auth.RefRead),
	"/millrace.v1.RefService/BatchGetRefs": edge.Needs(auth.RefRead),
	"/millrace.v1.RefService/ListRefs":     edge.Needs(auth.RefRead),
	"/millrace.v1.RefService/ReadReflog":   edge.Needs(auth.RefRead),
	"/millrace.v1.RefService/ListActivity": edge.Needs(auth.RefRead),
	"/millrace.v1.RefService/UpdateRefs":   edge.Needs(auth.RefWrite),
	"/millrace.v1.RefService/Session":      edge.Needs(auth.RefWrite),
	"/millrace.v1.RefService/LoadRefs":     edge.Needs(auth.RefWrite),
	// Of search, reading protected fields is a right of its own; see search_protected.go.
	"/millrace.v1.SearchService/SetCollection":    edge.Needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/GetCollection":    edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/ListCollections":  edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/DeleteCollection": edge.Needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/CollectionStats":  edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/UpsertPoints":     edge.Needs(auth.SearchWrite),
	"/millrace.v1.SearchService/DeletePoints":     edge.Needs(auth.SearchWrite),
	"/millrace.v1.SearchService/GetPoints":        edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/CountPoints":      edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/PutRuleset":       edge.Needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/GetRuleset":       edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/ListRulesets":     edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/DeleteRuleset":    edge.Needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/Embed":            edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/Search":           edge.Needs(auth.SearchRead),
	"/millrace.v1.SearchService/GetRecording":     edge.Needs(auth.SearchRead),

	"/millrace.v1.ServerService/Status": edge.AnyToken(), // its counters of all tenants: admin only
	"/millrace.v1.QueueStream/Open":     edge.AnyToken(), // each frame by the table of frames
	"/millrace.v1.KVStream/Open":        edge.AnyToken(), // the same

	"/millrace.v1.BackupService/Take": edge.Needs(auth.Backup), // it shows all tenants' data

	"/millrace.v1.ClusterService/Status":         edge.Needs(auth.Cluster), // of all tenants' nodes
	"/millrace.v1.ClusterService/ChangeMembers":  edge.Needs(auth.Cluster),
	"/millrace.v1.ClusterService/TransferShard":  edge.Needs(auth.Cluster),
	"/millrace.v1.ClusterService/BalanceShards":  edge.Needs(auth.Cluster),
	"/millrace.v1.ClusterService/FinalizeFormat": edge.Needs(auth.Cluster),

	// Without a token: it tells whether the server serves, and nothing else.
	"/grpc.health.v1.Health/Check": edge.Public(),
	"/grpc.health.v1.Health/List":  edge.Public(), // not implemented, as the next one
	"/grpc.health.v1.Health/Watch": edge.Public(),
}

// RefsService begins the methods of refs.
const RefsService = "/millrace.v1.RefService/"

// RuleOf says who may use a method. The rule of a method that does not exist is empty.
// Other doors ask it for the rule of the method that they serve in another way.
func RuleOf(method string) edge.Rule { return methods[method] }

// frames is the same table for the frames that a client may send in a stream.
var frames = map[string]edge.Rule{
	"hello":     edge.AnyToken(),
	"create":    edge.Needs(auth.TaskCreate),
	"commit":    edge.AnyToken(), // each op by the table of ops
	"subscribe": edge.Needs(auth.TaskWork),
	"slots":     edge.Needs(auth.TaskWork),
	"settle":    edge.Needs(auth.TaskWork), // and its effects by the table of ops
	"renew":     edge.Needs(auth.TaskWork),
	"auth":      edge.AnyToken(),
	"drain":     edge.AnyToken(),
	"puts":      edge.Needs(auth.KVWrite),
	"gets":      edge.Needs(auth.KVRead),
	"waits":     edge.Needs(auth.TaskRead),
}

// FrameRule says who may send a frame of a stream, by its name in the contract.
func FrameRule(name string) edge.Rule { return frames[name] }

// operates is who looks after tasks and queues; cancels is who may take back what a producer asked for.
var (
	operates = edge.Needs(auth.TaskOperate).OrAny(auth.Admin)
	cancels  = edge.Needs(auth.TaskCreate).OrAny(auth.TaskOperate | auth.Admin)
)

// The rules of a commit's parts that are not ops: those have theirs in opRow.
var (
	// A fence is a lease, which workers have. A condition tells what a key is, but only to who may
	// write it.
	fenceRule     = edge.Needs(auth.TaskWork)
	conditionRule = edge.Needs(auth.KVWrite)
)

// namespaceRule is of reading a namespace: who creates or claims tasks must know how many partitions they are spread over.
var namespaceRule = edge.Needs(auth.TaskRead).OrAny(auth.TaskCreate | auth.TaskWork)

// checkRules reports methods, frames and ops of the contract that have no rule, and rules of nothing.
// It compares both ways: a rule of what does not exist is a slip of a name, which leaves something
// else open or closed.
func checkRules(known map[string]bool) error {
	if err := sameNames("method", known, methods); err != nil {
		return err
	}
	frame := (&pb.ClientFrame{}).ProtoReflect().Descriptor()
	if err := sameNames("frame", membersOf(frame), frames); err != nil {
		return err
	}
	return sameNames("op", membersOf((&pb.Op{}).ProtoReflect().Descriptor()), opRules())
}

// membersOf are the names of the fields of a message, by which frames and ops are known.
// They are names of fields, since frames and ops are members of a oneof.
func membersOf(m protoreflect.MessageDescriptor) map[string]bool {
	out := make(map[string]bool)
	for i := range m.Fields().Len() {
		out[string(m.Fields().Get(i).Name())] = true
	}
	return out
}

// sameNames holds a table of rules to the names of the contract: each has a rule that is not empty, and there is no other.
// known are the names of the contract. An empty rule counts as none.
func sameNames(kind string, known map[string]bool, rules map[string]edge.Rule) error {
	for name := range known {
		if r, ok := rules[name]; !ok || r.Empty() {
			return fmt.Errorf("%s %s has no rule that says who may use it", kind, name)
		}
	}
	for name := range rules {
		if !known[name] {
			return fmt.Errorf("there is a rule for %s %s, which does not exist", kind, name)
		}
	}
	return nil
}

// admit decides whether a method may be called, by its rule, and says who calls.
// The context that it returns knows the caller, also of a call that is refused for want of a scope. A
// method without a rule is not called at all.
func (s *Server) admit(ctx context.Context, method string) (context.Context, edge.Caller, core.Fact) {
	r, ok := methods[method]
	if !ok {
		return ctx, edge.Caller{}, core.Denied{Scope: "unknown"}
	}
	if r.Public {
		return ctx, edge.Caller{}, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	var from string
	if p, ok := grpcpeer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	who, fact := s.Authenticate(md, from)
	if fact != nil {
		return ctx, edge.Caller{}, fact
	}
	if fact := r.Missing(who.Scopes); fact != nil {
		return ctx, edge.Caller{}, fact
	}
	return edge.WithCaller(ctx, who), who, nil
}
