package rest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// eventBytes bounds one event: 10,000 queues have about 4 MB.
	eventBytes = 32 << 20
	// eventSilence is after how long without a word a stream of events counts as lost: a server writes each 15 s.
	eventSilence = 45 * time.Second
)

// Event is a server-sent event.
type Event struct {
	// ID says what its reader has by then; Topic is its name, and Data what it carries.
	ID, Topic string
	Data      []byte
}

// Events reads server-sent events, from the one after last on, and gives each to got until that says false. It returns nil when the stream
// has ended, which servers do after a time, and else a *Fault.
func (r *Conn) Events(ctx context.Context, topics, last string, got func(Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	silent := time.AfterFunc(eventSilence, cancel)
	defer silent.Stop()
	resp, err := r.open(ctx, restRequest{method: http.MethodGet, path: "/v1/events", query: url.Values{"topics": {topics}}, lastEvent: last})
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it has ended, or is given up
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, eventBytes)
	var e Event
	for lines.Scan() {
		silent.Reset(eventSilence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			e.ID = value
		case "event":
			e.Topic = value
		case "data":
			e.Data = []byte(value)
		case "": // the end of an event, or a comment
			if e.Data != nil && !got(e) {
				return nil
			}
			e = Event{}
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && ctx.Err() == nil {
		return restUnanswered(ctx, r.Host(), true, err)
	}
	return nil
}
