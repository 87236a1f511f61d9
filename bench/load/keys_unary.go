package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/bench"
	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// KeysUnary puts keys by callers that wait for each answer, with one gRPC call for each put, over
// as many connections as there are producers. All kinds of servers take the same calls, the relays
// of the ping-pong too, so that the rows compare.
func KeysUnary(ctx context.Context, rig *bench.Rig) error {
	u := &unaryRun{keyRun: keyRun{rig: rig, ledger: newKeyLedger(rig), put: rig.Op("put")}}
	// Relays and the null server keep nothing: their puts are not for the audit.
	if len(rig.Servers) > 0 && !bare(rig.Shape.Kind) && !rig.Ceiling {
		rig.Keys = u.ledger
	}
	defer func() {
		for _, c := range u.clients {
			_ = c.Close() // every call was answered, or an error tells
		}
	}()
	for range max(rig.Shape.Producers, 1) {
		c, err := rig.Dial(ctx, 0)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		u.clients = append(u.clients, c)
		u.doors = append(u.doors, pb.NewKVServiceClient(c.Conn()))
	}
	done := rig.Generate(ctx, rig.Shape.Loops(), u.once)
	err := rig.Measure(ctx)
	<-done
	return err
}

// unaryRun is the callers of a run. The caller with number n uses connection n modulo their count.
type unaryRun struct {
	keyRun
	// clients are the connections, of which each may have several callers.
	clients []*millrace.Client
	// doors are the services of clients, in the same order.
	doors []pb.KVServiceClient
}

// once puts one key and waits for its answer.
func (u *unaryRun) once(ctx context.Context, p *bench.Pump) {
	n := u.next.Add(1) - 1
	resp, err := u.doors[p.Number%len(u.doors)].Put(ctx, putRequest(u.ledger.Key(n), u.ledger.Value(n)))
	u.answer(p.Number, n, p.Intended, resp.GetRev(), err)
}

// putRequest is one put as a call of its own.
func putRequest(key string, value []byte) *pb.KVPutRequest {
	return &pb.KVPutRequest{Put: &pb.KVPut{Keyspace: keysKeyspace, Key: []byte(key), Value: value}}
}

// errKind says that a row asks for a kind of relay that does not exist.
var errKind = errors.New("relays are over grpc or over the transport")
