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
)

// methods is the only table from a method to who may call it. A method without a row is denied, and keeps a server
// from being made.
var methods = map[string]rule{
	"/millrace.v1.TaskService/Create":       needs(auth.TaskCreate),
	"/millrace.v1.TaskService/BatchCreate":  needs(auth.TaskCreate),
	"/millrace.v1.TaskService/Get":          needs(auth.TaskRead),
	"/millrace.v1.TaskService/ListAttempts": needs(auth.TaskRead),
	"/millrace.v1.TaskService/List":         needs(auth.TaskRead),
	"/millrace.v1.TaskService/Wait":         needs(auth.TaskRead),
	"/millrace.v1.TaskService/Claim":        needs(auth.TaskWork),
	"/millrace.v1.TaskService/Heartbeat":    needs(auth.TaskWork),
	"/millrace.v1.TaskService/Settle":       needs(auth.TaskWork), // and its effects by the table of ops
	"/millrace.v1.TaskService/RunNow":       needs(auth.Admin),
	"/millrace.v1.TaskService/Delete":       needs(auth.Admin),
	"/millrace.v1.TaskService/Update":       needs(auth.TaskCreate),
	"/millrace.v1.TaskService/Cancel":       needs(auth.TaskCreate),
	"/millrace.v1.TaskService/Retry":        needs(auth.Admin),

	"/millrace.v1.CommitService/Commit": anyToken(), // each op by the table of ops
	"/millrace.v1.KVService/Get":        needs(auth.KVRead),
	"/millrace.v1.KVService/BatchGet":   needs(auth.KVRead),
	"/millrace.v1.KVService/Range":      needs(auth.KVRead),

	"/millrace.v1.KVService/Put":         needs(auth.KVWrite),
	"/millrace.v1.KVService/Delete":      needs(auth.KVWrite),
	"/millrace.v1.KVService/DeleteRange": needs(auth.KVWrite),

	"/millrace.v1.KeyspaceService/Set":    needs(auth.Admin),
	"/millrace.v1.KeyspaceService/Get":    needs(auth.KVRead),
	"/millrace.v1.KeyspaceService/List":   needs(auth.KVRead),
	"/millrace.v1.KeyspaceService/Delete": needs(auth.Admin),

	"/millrace.v1.QueueService/List":            needs(auth.TaskRead),
	"/millrace.v1.QueueService/Get":             needs(auth.TaskRead),
	"/millrace.v1.QueueService/Set":             needs(auth.Admin),
	"/millrace.v1.QueueService/Delete":          needs(auth.Admin),
	"/millrace.v1.QueueService/Stats":           needs(auth.TaskRead),
	"/millrace.v1.QueueService/CreateNamespace": needs(auth.Admin),
	"/millrace.v1.QueueService/DeleteNamespace": needs(auth.Admin),
	"/millrace.v1.QueueService/GetNamespace":    namespaceRule,
	"/millrace.v1.QueueService/SetNamespace":    needs(auth.Admin),

	"/millrace.v1.TenantService/Get": needs(auth.Admin).orAny(auth.TenantAdmin), // of another: tenant:admin only
	"/millrace.v1.TenantService/Set": needs(auth.TenantAdmin),

	"/millrace.v1.RefService/CreateRepo":          needs(auth.RefCreate),
	"/millrace.v1.RefService/GetRepo":             needs(auth.RefRead),
	"/millrace.v1.RefService/ListRepos":           needs(auth.RefRead),
	"/millrace.v1.RefService/UpdateRepo":          needs(auth.RefAdmin),
	"/millrace.v1.RefService/DeleteRepo":          needs(auth.RefAdmin),
	"/millrace.v1.RefService/UndeleteRepo":        needs(auth.RefAdmin),
	"/millrace.v1.RefService/GetRef":              needs(auth.RefRead),
	"/millrace.v1.RefService/BatchGetRefs":        needs(auth.RefRead),
	"/millrace.v1.RefService/ListRefs":            needs(auth.RefRead),
	"/millrace.v1.RefService/ReadReflog":          needs(auth.RefRead),
	"/millrace.v1.RefService/UpdateRefs":          needs(auth.RefWrite),
	"/millrace.v1.RefService/Session":             needs(auth.RefWrite),
	"/millrace.v1.RefService/LoadRefs":            needs(auth.RefWrite),
	"/millrace.v1.SearchService/SetCollection":    needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/GetCollection":    needs(auth.SearchRead),
	"/millrace.v1.SearchService/ListCollections":  needs(auth.SearchRead),
	"/millrace.v1.SearchService/DeleteCollection": needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/CollectionStats":  needs(auth.SearchRead),
	"/millrace.v1.SearchService/UpsertPoints":     needs(auth.SearchWrite),
	"/millrace.v1.SearchService/DeletePoints":     needs(auth.SearchWrite),
	"/millrace.v1.SearchService/GetPoints":        needs(auth.SearchRead),
	"/millrace.v1.SearchService/CountPoints":      needs(auth.SearchRead),
	"/millrace.v1.SearchService/PutRuleset":       needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/GetRuleset":       needs(auth.SearchRead),
	"/millrace.v1.SearchService/ListRulesets":     needs(auth.SearchRead),
	"/millrace.v1.SearchService/DeleteRuleset":    needs(auth.SearchAdmin),
	"/millrace.v1.SearchService/Embed":            needs(auth.SearchRead),
	"/millrace.v1.SearchService/Search":           needs(auth.SearchRead),
	"/millrace.v1.SearchService/GetRecording":     needs(auth.SearchRead),

	"/millrace.v1.ServerService/Status": anyToken(), // its counters of all tenants: admin only
	"/millrace.v1.QueueStream/Open":     anyToken(), // each frame by the table of frames
	"/millrace.v1.KVStream/Open":        anyToken(), // the same

	"/millrace.v1.BackupService/Take": needs(auth.Backup), // it shows all tenants' data

	"/millrace.v1.ClusterService/Status":         needs(auth.Cluster), // of all tenants' nodes
	"/millrace.v1.ClusterService/ChangeMembers":  needs(auth.Cluster),
	"/millrace.v1.ClusterService/TransferShard":  needs(auth.Cluster),
	"/millrace.v1.ClusterService/BalanceShards":  needs(auth.Cluster),
	"/millrace.v1.ClusterService/FinalizeFormat": needs(auth.Cluster),

	"/grpc.health.v1.Health/Check": public(),
	"/grpc.health.v1.Health/List":  public(), // not implemented, as the next one
	"/grpc.health.v1.Health/Watch": public(),
}

// refsService begins the methods of refs.
const refsService = "/millrace.v1.RefService/"

// ruleOf says who may use a method. The rule of a method that does not exist is empty.
func ruleOf(method string) rule { return methods[method] }

// frames is the same table for the frames that a client may send in a stream.
var frames = map[string]rule{
	"hello":     anyToken(),
	"create":    needs(auth.TaskCreate),
	"commit":    anyToken(), // each op by the table of ops
	"subscribe": needs(auth.TaskWork),
	"slots":     needs(auth.TaskWork),
	"settle":    needs(auth.TaskWork), // and its effects by the table of ops
	"renew":     needs(auth.TaskWork),
	"auth":      anyToken(),
	"drain":     anyToken(),
	"puts":      needs(auth.KVWrite),
	"gets":      needs(auth.KVRead),
}

// ops is the same table for the ops of a commit and for what else it may hold.
var ops = map[string]rule{
	"task_create":   needs(auth.TaskCreate),
	"task_complete": needs(auth.TaskWork),
	"task_fail":     needs(auth.TaskWork),
	"task_snooze":   needs(auth.TaskWork),
	"kv_put":        needs(auth.KVWrite),
	"vector_upsert": needs(auth.SearchWrite),
	"vector_delete": needs(auth.SearchWrite),
	"kv_delete":     needs(auth.KVWrite),
	"kv_check":      needs(auth.KVWrite),

	"kv_add":          needs(auth.KVWrite),
	"kv_delete_range": needs(auth.KVWrite),
	"ref_transaction": needs(auth.RefWrite), // refs whose updates do not move forward: ref:force too

	"reserved": anyToken(), // refused as not supported
}

// The rules of a commit's other parts.
var (
	fenceRule     = needs(auth.TaskWork)
	conditionRule = needs(auth.KVWrite)
)

// namespaceRule is of reading a namespace: who creates or claims tasks must know how many partitions they are spread over.
var namespaceRule = needs(auth.TaskRead).orAny(auth.TaskCreate | auth.TaskWork)

// checkRules reports methods, frames and ops of the contract that have no rule, and rules of nothing.
func checkRules(known map[string]bool) error {
	if err := sameNames("method", known, methods); err != nil {
		return err
	}
	frame := (&pb.ClientFrame{}).ProtoReflect().Descriptor()
	if err := sameNames("frame", membersOf(frame), frames); err != nil {
		return err
	}
	return sameNames("op", membersOf((&pb.Op{}).ProtoReflect().Descriptor()), ops)
}

func membersOf(m protoreflect.MessageDescriptor) map[string]bool {
	out := make(map[string]bool)
	for i := range m.Fields().Len() {
		out[string(m.Fields().Get(i).Name())] = true
	}
	return out
}

func sameNames(kind string, known map[string]bool, rules map[string]rule) error {
	for name := range known {
		if r, ok := rules[name]; !ok || r.empty() {
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
func (s *Server) admit(ctx context.Context, method string) (context.Context, caller, core.Fact) {
	r, ok := methods[method]
	if !ok {
		return ctx, caller{}, core.Denied{Scope: "unknown"}
	}
	if r.public {
		return ctx, caller{}, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	var from string
	if p, ok := grpcpeer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	who, fact := s.authenticate(md, from)
	if fact != nil {
		return ctx, caller{}, fact
	}
	if fact := r.missing(who.Scopes); fact != nil {
		return ctx, caller{}, fact
	}
	return withCaller(ctx, who), who, nil
}
