package localport

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The range that tests of this package compete for. Processes of other packages may hold a few of its numbers.
var contested = bounds{31_000, 31_999}

// holderRows, in the environment, makes this program a holder: it reserves that many rows of rowLength numbers, prints the
// first number of each, and holds them until its input ends.
const (
	holderRows = "LOCALPORT_ROWS"
	rowLength  = 5
)

func TestMain(m *testing.M) {
	if rows := os.Getenv(holderRows); rows != "" {
		if err := hold(rows); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func hold(rows string) error {
	n, err := strconv.Atoi(rows)
	if err != nil {
		return err
	}
	for range n {
		p, err := reserve(contested, rowLength)
		if err != nil {
			return err
		}
		defer p.Release()
		fmt.Println(p.First())
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// holder is a process that holds reservations until end is called.
type holder struct {
	firsts []int
	end    func()
}

func startHolder(t *testing.T, rows int) (out *holder, wait func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderRows+"="+strconv.Itoa(rows))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out = &holder{end: func() {
		stdin.Close()
		_ = cmd.Wait() // it was asked to end
	}}
	t.Cleanup(out.end)
	return out, func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && lines.Text() != "held" {
			first, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Errorf("a holder said %q", lines.Text())
				return
			}
			out.firsts = append(out.firsts, first)
		}
		if len(out.firsts) != rows {
			t.Errorf("a holder has %d rows, want %d", len(out.firsts), rows)
		}
	}
}

func TestProcessesThatReserveAtTheSameTimeShareNoNumber(t *testing.T) {
	const processes, rows = 10, 12 // 600 of 1,000 numbers
	holders := make([]*holder, processes)
	waits := make([]func(), processes)
	for i := range holders {
		holders[i], waits[i] = startHolder(t, rows)
	}
	owner := map[int]int{}
	for i, wait := range waits {
		wait()
		for _, first := range holders[i].firsts {
			for number := first; number < first+rowLength; number++ {
				if other, ok := owner[number]; ok {
					t.Errorf("processes %d and %d have port %d", other, i, number)
				}
				owner[number] = i
			}
		}
	}
	// What a process held can be reserved again once it has ended.
	for _, h := range holders {
		h.end()
	}
	for _, first := range holders[0].firsts {
		p, err := reserve(bounds{first, first + rowLength - 1}, rowLength)
		if err != nil {
			t.Errorf("the ports of a process that has ended: %v", err)
			continue
		}
		p.Release()
	}
}

func TestAReservedNumberIsFreeForItsServerAlone(t *testing.T) {
	p, err := Reserve(3)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	here := bounds{p.First(), p.First() + 2}
	for _, at := range p.Addresses() {
		for range 2 { // its server is started again
			lis, err := net.Listen("tcp", at)
			if err != nil {
				t.Fatalf("a reserved port is taken: %v", err)
			}
			if err := lis.Close(); err != nil {
				t.Fatal(err)
			}
			if other, err := reserve(here, 1); err == nil {
				t.Fatalf("port %d is reserved twice", other.First())
			}
		}
	}
	p.Release()
	p.Release()
	again, err := reserve(here, 3)
	if err != nil {
		t.Fatalf("after Release: %v", err)
	}
	again.Release()
}

func TestANumberOnWhichAProgramListensIsLeftOut(t *testing.T) {
	row, err := Reserve(4)
	if err != nil {
		t.Fatal(err)
	}
	defer row.Release()
	lis, err := net.Listen("tcp", row.Addresses()[1])
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	here := bounds{row.First(), row.First() + 3}
	row.Release()
	p, err := reserve(here, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if p.First() != here.first+2 {
		t.Errorf("the row begins at the number %d of four, of which a program has the second", p.First()-here.first+1)
	}
	if p, err := reserve(here, 3); err == nil {
		t.Errorf("three numbers in a row from %d on, and one of four is taken", p.First())
	}
}

func TestReservationsLieOutsideTheNumbersThatTheKernelDraws(t *testing.T) {
	for text, want := range map[string]bounds{
		"":                {10_000, 32_767},
		"32768\t60999\n":  {10_000, 32_767},
		"20000 60999":     {10_000, 19_999},
		"10500 60999":     {61_000, 65_535},
		"1024 9000":       {10_000, 65_535},
		"1024 65535":      {10_000, 32_767},
		"many and more":   {10_000, 32_767},
		"1 2 3":           {10_000, 32_767},
		"32768 many":      {10_000, 32_767},
		"49152 65535 \n ": {10_000, 49_151},
	} {
		if got := outside(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestTooManyNumbersAreRefused(t *testing.T) {
	for _, n := range []int{0, -1, 1_001} {
		if p, err := reserve(contested, n); err == nil || !strings.Contains(err.Error(), "must be 1 to 1000") {
			t.Errorf("%d numbers: %v, %v", n, p, err)
		}
	}
}

// A program that is being started has copies of this process's sockets until it runs.
func TestANumberIsFreeAtOnceWhileProgramsAreStarted(t *testing.T) {
	var all sync.WaitGroup
	defer all.Wait()
	over := make(chan struct{})
	defer close(over)
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_ = exec.Command("true").Run() // nothing is asked of it
				}
			}
		})
	}
	for range 500 {
		p, err := Reserve(3)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range p.Addresses() {
			lis, err := net.Listen("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			_ = lis.Close() // it has no connections
		}
		p.Release()
	}
}
