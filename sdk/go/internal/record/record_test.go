package record

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// A call that waits may find the task running for someone else. When that attempt has failed, no one else may be there to run the next one.
func TestAWaitHasATaskRunAgainAfterAnAttemptOfAnother(t *testing.T) {
	s := New()
	defer s.Close()
	conn, err := grpc.NewClient("passthrough:///record", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.Dial(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	spec := &millracev1.TaskSpec{Id: place.NewID(), Queue: "q", Kind: "q"}
	if a := s.createAll(&millracev1.CreateFrame{Tasks: []*millracev1.TaskSpec{spec}}); a.Error != nil || a.Created[0].Error != nil {
		t.Fatalf("got %v", a)
	}

	next := func() *millracev1.Assignment {
		return s.Next([]string{"q"}, func(string) bool { return true }, nil)
	}
	settle := func(a *millracev1.Assignment, m *millracev1.SettleItem) {
		m.Id, m.Token = a.Id, a.Token
		if _, refusal := s.Settle(m); refusal != nil {
			t.Errorf("got %v", refusal)
		}
	}
	began := make(chan *millracev1.Assignment, 1)
	calls := 0
	s.OnWait(func(context.Context) error {
		if calls++; calls == 1 {
			began <- next() // of another: it runs on when the function returns
		} else {
			settle(next(), &millracev1.SettleItem{Outcome: &millracev1.SettleItem_Complete{Complete: &millracev1.Complete{Result: []byte("7")}}})
		}
		return nil
	})
	go func() {
		settle(<-began, &millracev1.SettleItem{Outcome: &millracev1.SettleItem_Fail{Fail: &millracev1.Fail{}}})
	}()
	got, err := millracev1.NewTaskServiceClient(conn).Wait(t.Context(), &millracev1.WaitRequest{Id: spec.Id})
	if err != nil || string(got.GetTask().GetResult()) != "7" || got.Task.Attempt != 2 || calls != 2 {
		t.Errorf("got %v, %v after %d calls, want the result of attempt 2 after 2", got, err, calls)
	}
}
