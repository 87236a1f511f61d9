package githttp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestPacketLinesAreReadAsTheyWereWritten(t *testing.T) {
	long := strings.Repeat("x", maxPayload)
	b := appendPkt(nil, "a", "", "b\n")
	b = append(append(appendPkt(append(b, flushPkt...), ""), delimPkt...), "0002"...)
	b = appendPkt(b, long)
	p := &pktReader{r: bufio.NewReader(bytes.NewReader(b))}
	for i, want := range []struct {
		kind    pktKind
		payload string
	}{{pktData, "ab\n"}, {pktFlush, ""}, {pktData, ""}, {pktDelim, ""}, {pktEnd, ""}, {pktData, long}} {
		kind, payload, err := p.next()
		if err != nil || kind != want.kind || string(payload) != want.payload {
			t.Errorf("line %d: %d %.20q, %v", i, kind, payload, err)
		}
	}
	if _, _, err := p.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestWhatIsNoPacketLineIsRefused(t *testing.T) {
	for in, want := range map[string]error{
		"": io.EOF, "00": io.ErrUnexpectedEOF, "0003": errPkt, "fff1": errPkt, "00g0": errPkt, "-001": errPkt, "0008abc": io.ErrUnexpectedEOF,
		"0008": io.ErrUnexpectedEOF,
	} {
		p := &pktReader{r: bufio.NewReader(strings.NewReader(in))}
		if _, _, err := p.next(); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", in, err, want)
		}
	}
}

func TestABandSplitsWhatIsTooLongForALine(t *testing.T) {
	var out bytes.Buffer
	w := &bandWriter{w: &out, band: bandText, most: 10}
	if n, err := io.WriteString(w, strings.Repeat("0123456789", 3)); n != 30 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	p := &pktReader{r: bufio.NewReader(&out)}
	text := ""
	for {
		_, payload, err := p.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || payload[0] != bandText || len(payload) > 10 {
			t.Fatalf("%q, %v", payload, err)
		}
		text += string(payload[1:])
	}
	if text != strings.Repeat("0123456789", 3) {
		t.Errorf("%q", text)
	}
}

func FuzzPkt(f *testing.F) {
	f.Add([]byte("0000"))
	f.Add(appendPkt(nil, "want x\n"))
	f.Add([]byte("fff0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &pktReader{r: bufio.NewReader(bytes.NewReader(b))}
		var again []byte
		for {
			kind, payload, err := p.next()
			if err != nil {
				break
			}
			if kind == pktData {
				again = appendPkt(again, string(payload))
			} else {
				again = append(again, "000"+string('0'+rune(kind)-1)...)
			}
		}
		if !bytes.EqualFold(again, b[:len(again)]) {
			t.Errorf("%q was read as %q", b, again)
		}
	})
}
