package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/test/sdk/fake"
)

// player is a fake server, and the stream of it that steps play: the last one that said hello.
type player struct {
	server  *fake.Server
	address string
	stream  *fake.Stream
	frames  []any // those of the stream that no step took, in their order
}

// limits are what a player's Welcome tells, where the step does not say more: those of a real server.
var limits = &pb.Limits{
	FrameItems: 512, FrameBytes: 4 << 20, UnackedItems: 4096, UnackedBytes: 16 << 20, UnackedCommits: 64, Slots: 4096, Waits: 4096,
}

func newPlayer(ctx context.Context) (*player, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &player{server: fake.Serve(lis), address: lis.Addr().String()}, nil
}

// do does what a step says.
func (p *player) do(ctx context.Context, word string, value any) (any, error) {
	if word == "hello" {
		return p.hello(ctx, value)
	}
	if p.stream == nil {
		return nil, errors.New("no stream said hello")
	}
	switch word {
	case "welcome":
		w := &pb.Welcome{}
		if err := parse(value, w); err != nil {
			return nil, err
		}
		if w.Limits == nil {
			w.Limits = limits
		}
		if w.Partitions == 0 {
			w.Partitions = 1
		}
		return nil, p.stream.Send(&pb.ServerFrame{Frame: &pb.ServerFrame_Welcome{Welcome: w}})
	case "send":
		f := &pb.ServerFrame{}
		if err := parse(value, f); err != nil {
			return nil, err
		}
		return nil, p.stream.Send(f)
	case "frame":
		return p.frame(ctx, value)
	case "no_frame":
		return nil, p.noFrame(value)
	case "closed":
		return nil, p.closed(ctx)
	case "end":
		return nil, p.end(value)
	}
	return nil, fmt.Errorf("a fake does not know the word %s", word)
}

// hello waits for the next stream, whose Hello must have the fields. The steps after it play that stream.
func (p *player) hello(ctx context.Context, want any) (any, error) {
	select {
	case p.stream = <-p.server.Streams:
	case <-ctx.Done():
		return nil, errors.New("no stream came")
	}
	p.frames = nil
	got, err := shown(p.stream.Hello)
	if err != nil {
		return nil, err
	}
	if d := differs(want, got); d != "" {
		return nil, fmt.Errorf("the stream said hello by %s: %s", show(got), d)
	}
	return got, nil
}

// frame waits for a frame that has the fields and that no step took before, and takes it.
func (p *player) frame(ctx context.Context, want any) (any, error) {
	for seen := 0; ; {
		for ; seen < len(p.frames); seen++ {
			if got := p.frames[seen]; differs(want, got) == "" {
				p.frames = slices.Delete(p.frames, seen, seen+1)
				return got, nil
			}
		}
		select {
		case f, ok := <-p.stream.In:
			if !ok {
				return nil, fmt.Errorf("the stream ended, and no frame %s came; those that no step took: %s", show(want), show(p.frames))
			}
			if err := p.came(f); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("no frame %s came; those that no step took: %s", show(want), show(p.frames))
		}
	}
}

// noFrame fails if a frame with the fields came so far that no step took.
func (p *player) noFrame(want any) error {
	for len(p.stream.In) > 0 {
		if f, ok := <-p.stream.In; ok {
			if err := p.came(f); err != nil {
				return err
			}
		}
	}
	for _, got := range p.frames {
		if differs(want, got) == "" {
			return fmt.Errorf("the frame %s came", show(got))
		}
	}
	return nil
}

// closed waits until the client has closed its side of the stream, or left it.
func (p *player) closed(ctx context.Context) error {
	for {
		select {
		case f, ok := <-p.stream.In:
			if !ok {
				return nil
			}
			if err := p.came(f); err != nil {
				return err
			}
		case <-ctx.Done():
			return errors.New("the client keeps the stream")
		}
	}
}

// end ends the stream: well, or with a status.
func (p *player) end(value any) error {
	fields, ok := value.(map[string]any)
	if !ok {
		p.stream.End(nil)
		return nil
	}
	fault, err := fake.Fault(fmt.Sprint(fields["code"]), fmt.Sprint(fields["message"]))
	if err != nil {
		return err
	}
	p.stream.End(fault)
	return nil
}

// came notes a frame of the client.
func (p *player) came(f *pb.ClientFrame) error {
	got, err := shown(f)
	p.frames = append(p.frames, got)
	return err
}

// parse reads a message out of fields, which have the names of the contract.
func parse(value any, m proto.Message) error {
	if _, ok := value.(map[string]any); !ok {
		return nil
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(b, m)
}

// shown are the fields of a message, by the names of the contract.
func shown(m proto.Message) (any, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	return plain(json.RawMessage(b))
}
