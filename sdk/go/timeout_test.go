package millrace

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// boundedCalls are calls of each kind that a timeout bounds.
var boundedCalls = map[string]func(ctx context.Context, c *Client) error{
	"add": func(ctx context.Context, c *Client) error {
		_, err := thumb.Add(ctx, c, thumbArgs{})
		return err
	},
	"add many": func(ctx context.Context, c *Client) error {
		_, err := thumb.AddMany(ctx, c, make([]thumbArgs, 2000)) // frames of 512 share the time
		return err
	},
	"add all": func(ctx context.Context, c *Client) error {
		_, err := thumb.AddAll(ctx, c, make([]thumbArgs, 2))
		return err
	},
	"commit": func(ctx context.Context, c *Client) error {
		return c.Commit(ctx, func(tx *Tx) { tx.KV("k").Put("a", "1") })
	},
	"put": func(ctx context.Context, c *Client) error {
		_, err := c.KV("k").Put(ctx, "a", "1")
		return err
	},
	"id": func(ctx context.Context, c *Client) error {
		_, err := c.NewID(ctx)
		return err
	},
	"read": func(ctx context.Context, c *Client) error {
		_, err := c.KV("k").Get(ctx, "a")
		return err
	},
	"change": func(ctx context.Context, c *Client) error {
		_, err := c.Cancel(ctx, NewID())
		return err
	},
}

// cause is the first error of err.
func cause(err error) error {
	var many *BatchError
	if errors.As(err, &many) {
		return many.Errors[0]
	}
	return err
}

func TestACallWithoutADeadlineEndsAfterTheTimeout(t *testing.T) {
	for name, call := range boundedCalls {
		for _, want := range []time.Duration{0, time.Second, 5 * time.Minute} { // 0: the default
			t.Run(name+" "+want.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts := []Option{Address("server.test:1"), Insecure(), Dialer(func(context.Context, string) (net.Conn, error) {
						return nil, errors.New("no route")
					})}
					if want == 0 {
						want = 30 * time.Second
					} else {
						opts = append(opts, Timeout(want))
					}
					c, err := Dial(t.Context(), opts...)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = c.Close() }()
					began := time.Now()
					err = cause(call(t.Context(), c))
					if e := asError(t, err); e.Code != CodeUnavailable || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want it unavailable, caused by the deadline", err)
					}
					if d := time.Since(began); d != want {
						t.Errorf("the call ended after %v, want %v", d, want)
					}
				})
			})
		}
	}
}

func TestACallThatLeftIsUnknownAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.client()
		defer f.end(c)
		out := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := thumb.Add(t.Context(), c, thumbArgs{})
			out <- err
		}()
		st := f.welcome(nil)
		st.create() // which has no answer
		err := <-out
		e := asError(t, err)
		if OutcomeOf(err) != Unknown || e.Code != CodeDeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v, want unknown, caused by the deadline", err, OutcomeOf(err))
		}
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("the call ended after %v, want 30s", d)
		}
	})
}

func TestADeadlineOfTheContextGoesBeforeTheTimeout(t *testing.T) {
	for name, call := range boundedCalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := Dial(t.Context(), Address("server.test:1"), Insecure(), Timeout(time.Second),
					Dialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("no route") }))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				if err := call(ctx, c); err == nil {
					t.Error("the call succeeded without a server")
				}
				if d := time.Since(began); d != time.Minute {
					t.Errorf("the call ended after %v, want 1m", d)
				}
			})
		})
	}
}

// What lasts is not bounded, and a timeout of 0 bounds nothing: such calls still try after an hour.
func TestWhatLastsHasNoTimeout(t *testing.T) {
	unbounded := map[string]func(ctx context.Context, c *Client) error{
		"wait": func(ctx context.Context, c *Client) error {
			_, err := c.Wait(ctx, NewID())
			return err
		},
		"range": func(ctx context.Context, c *Client) error {
			for _, err := range c.KV("k").Range(ctx, Prefix("")) {
				return err
			}
			return nil
		},
		"watch": func(ctx context.Context, c *Client) error {
			for _, err := range c.Watch(ctx, NewID()) {
				return err
			}
			return ctx.Err()
		},
		"session": func(ctx context.Context, c *Client) error {
			_, err := c.Repo("r").Session(ctx)
			return err
		},
	}
	check := func(name string, timeout time.Duration, call func(ctx context.Context, c *Client) error) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := Dial(t.Context(), Address("server.test:1"), Insecure(), Timeout(timeout),
					Dialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("no route") }))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				ctx, cancel := context.WithCancel(t.Context())
				out := make(chan error, 1)
				go func() { out <- call(ctx, c) }()
				time.Sleep(time.Hour)
				if len(out) > 0 {
					t.Error("the call has ended")
				}
				cancel()
				<-out
			})
		})
	}
	for name, call := range unbounded {
		check(name, time.Second, call)
	}
	for name, call := range boundedCalls {
		check(name+" without a bound", 0, call)
	}
}

// A wait that a server serves goes on too.
func TestAWaitOutlivesTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		goOn := make(chan struct{})
		f.wait = func(ctx context.Context, id string) (*pb.WaitResponse, error) {
			select {
			case <-goOn:
				return &pb.WaitResponse{Task: &pb.Task{Id: id, State: pb.State_COMPLETED}}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c := f.client(Timeout(time.Second))
		defer f.end(c)
		time.AfterFunc(time.Hour, func() { close(goOn) })
		if info, err := c.Wait(t.Context(), NewID()); err != nil || info.State != Completed {
			t.Errorf("got %v, %v after an hour, want the task", info, err)
		}
	})
}
