package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

func TestKeysOfACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	t.Run("are written and read at each node, which sends writes on", c.keysAtEachNode)
	t.Run("are put once and in order by a stream whose leader is lost with a full window", c.windowOfALostLeader)
	t.Run("are put once and in order by a client that sees the leader go", c.streamOverALostLeader)
}

// keysAtEachNode puts a large value at each node, over REST and gRPC, and reads it at all of them.
func (c *nodes) keysAtEachNode(t *testing.T) {
	lead := c.leader()
	value := make([]byte, 300<<10)
	random := rand.NewChaCha8([32]byte{17})
	for node := range c.peers {
		random.Read(value) //nolint:errcheck // it never fails
		path := fmt.Sprintf("/v1/kv/ks/keys/of%%2Fnode%d", node)
		rev, index := c.putByHand(t, node, lead, path, value)
		for reader := range c.peers {
			status, header, got := c.plainHTTP(t, "GET", "http://"+c.peers[reader].HTTP+path, nil)
			if status != http.StatusOK || !bytes.Equal(got, value) || header.Get("Millrace-Rev") != rev {
				t.Errorf("what node %d took is at node %d: %d, %d bytes, rev %s", node+1, reader+1, status, len(got), header.Get("Millrace-Rev"))
			}
			if at := indexOf(t, header); at < index {
				t.Errorf("node %d reads as of %d, the write was acknowledged at %d", reader+1, at, index)
			}
		}
		put := &millracev1.KVPutRequest{Put: &millracev1.KVPut{Keyspace: "ks", Key: []byte("by gRPC"), Value: value[:node+1]}}
		answer := newRaw(t, c.peers[node].API, c.token).call(t, "KVService/Put", put)
		if node == lead {
			if answer.status != 0 {
				t.Errorf("a put at the leader: %d %v", answer.status, answer.err())
			}
			continue
		}
		if e := answer.err(); e.GetCode() != "NOT_LEADER" || e.GetLeader() != c.peers[lead].API || e.GetOutcome() != millracev1.Error_REFUSED {
			t.Errorf("a put at node %d: %d %v", node+1, answer.status, e)
		}
	}
}

// putByHand puts at a node and goes where it is sent, with the same body; it returns revision and index of the write.
func (c *nodes) putByHand(t *testing.T, node, lead int, path string, value []byte) (rev string, index uint64) {
	t.Helper()
	at := "http://" + c.peers[node].HTTP + path + "?if_rev=0"
	status, header, got := c.plainHTTP(t, "PUT", at, value)
	if node != lead {
		to, err := url.Parse(header.Get("Location"))
		want, _ := url.Parse(at)
		if status != http.StatusTemporaryRedirect || err != nil || to.Host != c.peers[lead].HTTP || to.EscapedPath() != want.EscapedPath() ||
			to.Query().Get("if_rev") != "0" || to.Query().Get("hop") != "1" {
			t.Fatalf("node %d sends a put on with %d to %q", node+1, status, header.Get("Location"))
		}
		status, header, got = c.plainHTTP(t, "PUT", to.String(), value)
	}
	if status != http.StatusOK {
		t.Fatalf("a put at node %d: %d %s", node+1, status, got)
	}
	return header.Get("Millrace-Rev"), indexOf(t, header)
}

// indexOf reads the index in an answer's place in the log.
func indexOf(t *testing.T, header http.Header) uint64 {
	t.Helper()
	at := header.Get("Millrace-Index")
	index, err := strconv.ParseUint(at[strings.LastIndexByte(at, '/')+1:], 10, 64)
	noErr(t, err)
	return index
}

// plainHTTP makes one request of raw bytes and follows nothing.
func (c *nodes) plainHTTP(t *testing.T, method, to string, body []byte) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t, time.Minute), method, to, bytes.NewReader(body))
	noErr(t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	noErr(t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	noErr(t, err)
	return resp.StatusCode, resp.Header, b
}

const windowFrames = 64 // that a session may have unacknowledged in a partition

// putsFrame is a frame of two puts: one of a key that all frames write, one of its own.
func putsFrame(seq, number uint64) *millracev1.ClientFrame {
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Puts{Puts: &millracev1.PutsFrame{
		Seq: seq, Keyspace: "window", CommitSeq: number, Items: []*millracev1.PutItem{
			{Key: []byte("last"), Value: fmt.Append(nil, number)},
			{Key: fmt.Append(nil, "own", number), Value: []byte("mine")},
		},
	}}}
}

// windowOfALostLeader loses a leader with a full window: of 64 frames that the client has no ack for, some were applied and
// the others lie in the log of a leader that no majority follows any more. At the next leader the client sends all again.
func (c *nodes) windowOfALostLeader(t *testing.T) {
	const applied, known = windowFrames, 34 // of the acks, those that came through
	const sent = known + windowFrames
	lead := c.leader()
	s := newRaw(t, c.peers[lead].API, c.token).openStreamOf(t, "KVStream")
	s.hello(7)
	first := map[uint64]*millracev1.Ack{}
	for seq := uint64(1); seq <= applied; seq++ {
		s.send(putsFrame(seq, seq))
	}
	for seq := uint64(1); seq <= applied; seq++ {
		if first[seq] = s.ack(seq); first[seq].Error != nil || first[seq].Puts.GetReplayed() {
			t.Fatalf("frame %d: %v", seq, first[seq])
		}
	}
	theirs, err := c.client(lead).KV("window").Put(bounded(t, time.Minute), "own50", "theirs")
	noErr(t, err)
	c.loseLeader(lead, func() {
		for seq := uint64(applied + 1); seq <= sent; seq++ {
			s.send(putsFrame(seq, seq))
		}
	})
	next := c.leader()
	s = newRaw(t, c.peers[next].API, c.token).openStreamOf(t, "KVStream")
	s.hello(7)
	for seq := uint64(known + 1); seq <= sent; seq++ {
		s.send(putsFrame(seq, seq))
	}
	s.send(putsFrame(sent+1, sent)) // one frame twice
	before := theirs
	revs := map[uint64]uint64{}
	for seq := uint64(known + 1); seq <= sent; seq++ {
		a := s.ack(seq)
		revs[seq] = a.GetPuts().GetFirstRev()
		switch again := seq <= applied; {
		case a.Error != nil || a.Puts.GetReplayed() != again:
			t.Fatalf("frame %d: %v", seq, a)
		case again && (revs[seq] != first[seq].Puts.FirstRev || a.At.Index != first[seq].At.Index):
			t.Errorf("frame %d is answered with %v, was with %v", seq, a, first[seq])
		case !again && revs[seq] <= before:
			t.Errorf("frame %d is at revision %d behind %d", seq, revs[seq], before)
		case !again:
			before = revs[seq]
		}
	}
	if a := s.ack(sent + 1); !a.Puts.GetReplayed() || a.Puts.FirstRev != revs[sent] {
		t.Errorf("a frame that is sent twice: %v, want revision %d", a, revs[sent])
	}
	c.start(lead)
	for node := range c.peers { // also that of the lost leader, whose log had more
		kv := c.client(node, millrace.Transport(millrace.TransportStream)).KV("window")
		if v, err := kv.Get(bounded(t, time.Minute), "last"); err != nil || v.String() != fmt.Sprint(sent) || v.Rev != revs[sent] {
			t.Errorf("node %d: the last put is %q at %d, %v, want %d at %d", node+1, v, v.Rev, err, sent, revs[sent])
		}
		for seq := uint64(known + 1); seq <= sent; seq++ {
			want, rev := "mine", revs[seq]+1
			if seq == 50 {
				want, rev = "theirs", theirs
			}
			v, err := kv.Get(bounded(t, time.Minute), fmt.Sprint("own", seq))
			if err != nil || v.String() != want || v.Rev != rev {
				t.Errorf("node %d: the key of frame %d holds %q at %d, %v, want %q at %d", node+1, seq, v, v.Rev, err, want, rev)
			}
		}
	}
}

// loseLeader takes a leader away when no node follows it any more: what does() writes is found in its log alone.
func (c *nodes) loseLeader(lead int, does func()) {
	c.t.Helper()
	others := []int{(lead + 1) % 3, (lead + 2) % 3}
	each := func(f func(int)) {
		var all sync.WaitGroup
		for _, i := range others {
			all.Go(func() { f(i) })
		}
		all.Wait()
	}
	each(c.stop)
	does()
	c.stop(lead)
	each(c.start)
}

// streamOverALostLeader puts through the SDK while the leader is stopped: one key again and again.
func (c *nodes) streamOverALostLeader(t *testing.T) {
	lead := c.leader()
	ctx := bounded(t, 90*time.Second)
	kv := c.client((lead + 1) % 3).KV("stream")
	s := kv.Stream()
	const puts = 2000
	var under []millrace.Written
	stopped := make(chan struct{})
	for i := range puts {
		if i == puts/4 {
			go func() {
				defer close(stopped)
				c.stop(lead)
			}()
		}
		w, err := s.Put(ctx, "key", fmt.Append(nil, i))
		noErr(t, err)
		under = append(under, w)
		if i == puts/2 {
			<-stopped
		}
	}
	last := uint64(0)
	for i, w := range under {
		rev, err := w.Wait(ctx)
		if err != nil || rev <= last {
			t.Fatalf("put %d: revision %d after %d, %v", i, rev, last, err)
		}
		last = rev
	}
	noErr(t, s.Close())
	if v, err := kv.Get(ctx, "key"); err != nil || v.String() != fmt.Sprint(puts-1) || v.Rev != last {
		t.Errorf("the key holds %q at %d, %v, want %d at %d", v, v.Rev, err, puts-1, last)
	}
	c.start(lead)
}
