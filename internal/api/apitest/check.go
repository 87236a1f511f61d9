package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// NotBuilt are methods of the contract that answer nothing yet, and with what.
var NotBuilt = map[string]codes.Code{
	"/grpc.health.v1.Health/List":  codes.Unimplemented,
	"/grpc.health.v1.Health/Watch": codes.Unimplemented,
}

// ExpectCode expects a call to have ended with a code.
func ExpectCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}

// Repeat is a list of n times the same.
func Repeat[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// MustID reads the id of a task.
func MustID(t *testing.T, s string) core.TaskID {
	t.Helper()
	id, err := core.ParseTaskID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// IDIn is the id of a task in one of four partitions.
func IDIn(place uint16, n byte) string {
	return core.PlacedID(Now.UnixMilli(), place, 4, [9]byte{n, n, n}).String()
}

// LeadersOf are the leaders of the first partitions, in their order, as Node.Lead takes them.
func LeadersOf(leaders ...string) map[uint16]string {
	out := make(map[uint16]string)
	for i, l := range leaders {
		out[uint16(i)] = l
	}
	return out
}

// PutCommit is a commit of one put, of v as k in ks.
func PutCommit() *pb.CommitRequest {
	put := &pb.KVPut{Keyspace: "ks", Key: []byte("k"), Value: []byte("v")}
	return &pb.CommitRequest{Ops: []*pb.Op{{Op: &pb.Op_KvPut{KvPut: put}}}}
}

// AssignedTasks are n tasks with payloads of that many bytes, whose leases have four of five seconds left.
func AssignedTasks(n, bytes int) []core.Assigned {
	out := make([]core.Assigned, n)
	for i := range out {
		out[i] = core.Assigned{
			Task: core.TaskID{1, byte(i)}, Token: core.Token(i + 1), Payload: make([]byte, bytes), Queue: "q",
			Lease: 5000, LeaseUntil: core.ShardTimeOf(Now).Add(4000),
		}
	}
	return out
}

// FullLimits are the facts by which the node refuses keys for which it has no room.
func FullLimits() []core.Exhausted {
	return []core.Exhausted{
		{Limit: "keyspaces", Max: 1000},
		{Limit: "keyspace_bytes", Max: 1 << 20},
		{Limit: "namespace_key_bytes", Max: 1 << 30},
		{Limit: "sessions", Max: 100_000},
		{Limit: "disk", Max: 5},
	}
}

// NewMessage makes an empty message of a type of the contract.
func NewMessage(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return mt.New().Interface()
}

// InvokeStream sends messages to a method, and reads its answers to the end.
func InvokeStream(ctx context.Context, t *testing.T, conn *grpc.ClientConn, full string, m protoreflect.MethodDescriptor, in []proto.Message) error {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ss, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, full)
	for _, f := range in {
		if err == nil {
			err = ss.SendMsg(f)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := ss.CloseSend(); err != nil {
		return err
	}
	for {
		if err := ss.RecvMsg(NewMessage(t, m.Output())); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// AddTask gives a tenant a task that has ended, in its default namespace.
func (n *Node) AddTask(t *testing.T, tenant, id string) {
	t.Helper()
	ns, err := n.Namespace(context.Background(), tenant, "default", true)
	if err != nil {
		t.Fatal(err)
	}
	task := MustID(t, id)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	p := ns.Partitions[0].Partition
	if n.Stored[p] == nil {
		n.Stored[p] = make(map[core.TaskID]core.Task)
	}
	n.Stored[p][task] = core.Task{
		ID: task, Queue: "mail", State: core.Completed, Payload: []byte(`{"to":"ada"}`), ContentType: "application/json",
		Result: []byte("true"), ResultType: "application/json", HasResult: true,
	}
}

// ExpectReached wants the one partition of a tenant's default namespace to have been reached, and no other.
func (n *Node) ExpectReached(t *testing.T, what, tenant string, got []core.Partition) {
	t.Helper()
	n.Mu.Lock()
	own := n.Spaces[tenant+"/default"].Partitions[0].Partition
	n.Mu.Unlock()
	if len(got) != 1 || got[0] != own {
		t.Errorf("%s: %s reached %v, want %v alone", what, tenant, got, own)
	}
}

// Idle waits until an edge holds nothing of any caller, as free tells, and expects that no session of the node stays open.
func (n *Node) Idle(t *testing.T, what string, free func() bool) {
	t.Helper()
	Eventually(t, what+": all is given back", free)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	for _, s := range n.Sessions {
		if _, _, closed := s.State(); !closed {
			t.Errorf("%s: a session of the node stays open", what)
		}
	}
	n.Sessions = nil
	for len(n.Opened) > 0 {
		<-n.Opened
	}
}

// PanicEverywhere makes a call with a panic at its first step below the edge, its second and so on, until it has fewer. After
// each, nothing is held, as free tells, and the call works as it did before.
func (n *Node) PanicEverywhere(t *testing.T, what string, free func() bool, call func() (outcome string, failed bool)) {
	t.Helper()
	want, _ := call()
	n.Idle(t, what, free)
	for at := int64(1); ; at++ {
		n.PanicIn.Store(at)
		_, failed := call()
		n.Idle(t, fmt.Sprintf("%s, a panic at step %d", what, at), free)
		if n.PanicIn.Swap(0) > 0 {
			if at == 1 {
				t.Errorf("%s reaches nothing that could panic", what)
			}
			return
		}
		if !failed {
			t.Errorf("%s, a panic at step %d, succeeds", what, at)
		}
		if got, _ := call(); got != want {
			t.Errorf("%s, after a panic at step %d: %s, before %s", what, at, got, want)
		}
		n.Idle(t, what, free)
	}
}

// DoneItem completes a task, without a result.
func DoneItem(n byte, token uint64) *pb.SettleItem {
	return &pb.SettleItem{Id: ID(n), Token: token, Outcome: &pb.SettleItem_Complete{Complete: &pb.Complete{}}}
}

// ExistsCheck is a condition that k in ks exists.
func ExistsCheck() *pb.KVCheck {
	return &pb.KVCheck{Keyspace: "ks", Key: []byte("k"), Compare: pb.KVCheck_EXISTS}
}

// Methods are the full names of all methods of the contract.
func Methods() (names []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("millrace.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			svc := f.Services().Get(i)
			for j := range svc.Methods().Len() {
				names = append(names, "/"+string(svc.FullName())+"/"+string(svc.Methods().Get(j).Name()))
			}
		}
		return true
	})
	return names
}
