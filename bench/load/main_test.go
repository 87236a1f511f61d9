package load

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/internal/server"
)

// TestMain is also the null server, and a server: the bench starts both as processes of their own, from the executable
// that it is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && slices.Equal(os.Args[1:3], []string{"bench", "null-server"}) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := NullServer(ctx, func(grpc, http string) {
			_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"grpc": grpc, "http": http})
		})
		if err != nil {
			os.Exit(1)
		}
		return
	}
	for _, c := range []struct {
		command string
		run     func(args []string) error
	}{{"serve", serve}, {"cluster init", clusterInit}, {"bench pingpong-server", pingPongServer}} {
		words := strings.Fields(c.command)
		if len(os.Args) > len(words) && slices.Equal(os.Args[1:1+len(words)], words) {
			if err := c.run(os.Args[1+len(words):]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintf(os.Stderr, "this program has no command %q\n", os.Args[1:])
		os.Exit(2) // and not the tests, which would start it over and over
	}
	os.Exit(m.Run())
}

// serve is a server with the flags that the bench gives it.
func serve(args []string) error {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.Bool("dev", false, "")
	f.Bool("json", false, "")
	for _, name := range []string{"log-level", "name"} {
		f.String(name, "", "")
	}
	dir, file := f.String("data", "", ""), f.String("token-file", "", "")
	listen, http, admin := f.String("listen", "", ""), f.String("http", "", ""), f.String("admin", "", "")
	durability, shards, config := f.String("durability", "", ""), f.Int("shards", 0, ""), f.String("config", "", "")
	tokens, o := f.String("tokens", "", ""), server.Options{}
	for _, row := range o.Limits.Rows() {
		f.Int64Var(row.Value, "limit-"+strings.ReplaceAll(row.Key, "_", "-"), 0, "")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if *config != "" {
		return serveNode(*config, *durability)
	}
	o.AdminSocket = os.Getenv("MILLRACE_SERVE_ADMIN_SOCKET")
	o.Dir, o.Listen, o.HTTP, o.Admin, o.Shards, o.TokensFile = *dir, *listen, *http, *admin, *shards, *tokens
	o.Durability, o.Reserve = server.Durability(*durability), 16<<20
	if o.TokensFile == "" {
		if err := dev(&o, *file); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Start(ctx, o)
	if err != nil {
		return err
	}
	told := map[string]string{"grpc": s.Address, "http": s.HTTPAddress, "admin": s.AdminAddress, "socket": s.SocketPath}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close(time.Second)
}

// dev makes one token, unless its file has one.
func dev(o *server.Options, file string) error {
	token, err := os.ReadFile(file)
	if err != nil {
		token = []byte(server.NewToken())
		if err := os.WriteFile(file, token, 0o600); err != nil {
			return err
		}
	}
	*o, err = server.Dev(*o, string(token))
	return err
}

func TestAThrottledDriverIsReportedAsTheWall(t *testing.T) {
	s := cycle(punctual(250 * time.Millisecond))
	s.Rows[0].NoCeiling = false
	var row bench.Row
	for range 5 { // a busy machine may hold up one of the two measurements
		row = measureAlone(t, s, startFaulty(t, faults{}), func(_ *bench.Config, h *bench.Harness) {
			h.NullServer = NullServer
		}).Suites[0]
		if row.Ceiling != nil && row.Ceiling.Bound {
			break
		}
	}
	if row.Ceiling == nil || !row.Ceiling.Bound || row.Ceiling.Reached < 0.8 {
		t.Fatalf("ceiling %+v, warnings %+v: want a row that is bound by its generator", row.Ceiling, row.Warnings)
	}
	if v := row.Label.Validity; v != bench.LowerBound {
		t.Errorf("the row is %q, want %q", v, bench.LowerBound)
	}
}

// punctual is Queue with pumps that call once in each period, in its middle: how long a call takes does not matter where it ends
// within half of it, and windows, which begin and end near the ends of periods, hold as many calls as periods.
func punctual(period time.Duration) bench.Driver {
	return func(ctx context.Context, rig *bench.Rig) error {
		q := newQueueRun(rig)
		pump := q.pump()
		began := time.Now()
		q.call = func(ctx context.Context, p *bench.Pump) {
			<-time.After(period - (time.Since(began)+period/2)%period)
			pump(ctx, p)
		}
		return q.run(ctx)
	}
}
