package cron_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests must not depend on the machine's

	"github.com/millrace/millrace/internal/cron"
)

// slots returns the slots after a time and up to another, as their zone shows them.
func slots(t *testing.T, schedule, zone, from, to string) (out []string) {
	t.Helper()
	s, err := cron.Parse(schedule, zone)
	if err != nil {
		t.Fatalf("parse %q in %s: %v", schedule, zone, err)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	at := moment(t, from)
	base, end := at, moment(t, to)
	for {
		next, ok := s.Next(at, base)
		if ok && !next.After(at) {
			t.Fatalf("%q: the slot after %s is %s", schedule, at, next)
		}
		if !ok || next.After(end) {
			return out
		}
		out = append(out, next.In(loc).Format("01-02 15:04:05 -0700"))
		at = next
	}
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The days on which the clocks change, in three zones: one of them moves them by half an hour.
func TestSlotsOnTheDaysOnWhichTheClocksChange(t *testing.T) {
	for _, c := range []struct {
		name, schedule, zone, from, to string
		want                           []string
	}{
		{
			"Berlin, spring: a skipped slot comes right after the gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-30T23:00:00Z",
			[]string{"03-28 02:30:00 +0100", "03-29 03:00:00 +0200", "03-30 02:30:00 +0200"},
		},
		{
			"Berlin, spring: what comes after the gap anyway fires once", "0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T20:00:00Z",
			[]string{"03-29 03:00:00 +0200", "03-29 03:30:00 +0200"},
		},
		{
			"Berlin, spring: every hour goes by time that passes", "30 * * * *", "Europe/Berlin", "2026-03-28T23:45:00Z", "2026-03-29T03:00:00Z",
			[]string{"03-29 01:30:00 +0100", "03-29 03:30:00 +0200", "03-29 04:30:00 +0200"},
		},
		{
			"Berlin, autumn: a repeated slot fires once", "30 2 * * *", "Europe/Berlin", "2026-10-24T00:30:00Z", "2026-10-26T22:00:00Z",
			[]string{"10-25 02:30:00 +0200", "10-26 02:30:00 +0100"},
		},
		{
			"Berlin, autumn: every hour comes twice", "*/30 * * * *", "Europe/Berlin", "2026-10-24T23:59:00Z", "2026-10-25T02:00:00Z",
			[]string{"10-25 02:00:00 +0200", "10-25 02:30:00 +0200", "10-25 02:00:00 +0100", "10-25 02:30:00 +0100", "10-25 03:00:00 +0100"},
		},
		{
			"New York, spring", "15 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-09T20:00:00Z",
			[]string{"03-08 03:00:00 -0400", "03-09 02:15:00 -0400"},
		},
		{
			"New York, autumn", "0 1,2 * * *", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z",
			[]string{"11-01 01:00:00 -0400", "11-01 02:00:00 -0500"},
		},
		{
			"New York, autumn: seconds of a repeated hour", "0,30 59 1 * * *", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-02T00:00:00Z",
			[]string{"11-01 01:59:00 -0400", "11-01 01:59:30 -0400"},
		},
		{
			"Lord Howe, spring: half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z", "2026-10-05T00:00:00Z",
			[]string{"10-04 02:30:00 +1100", "10-05 02:15:00 +1100"},
		},
		{
			"Lord Howe, autumn: half an hour is repeated", "45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z", "2026-04-05T20:00:00Z",
			[]string{"04-05 01:45:00 +1100", "04-06 01:45:00 +1030"},
		},
		{
			"Lord Howe, autumn: minutes of every hour", "45 * * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-04T16:30:00Z",
			[]string{"04-05 01:45:00 +1100", "04-05 01:45:00 +1030", "04-05 02:45:00 +1030"},
		},
		{
			"a period counts time that passes", "@every 45m", "Europe/Berlin", "2026-10-24T23:30:00Z", "2026-10-25T02:00:00Z",
			[]string{"10-25 02:15:00 +0200", "10-25 02:00:00 +0100", "10-25 02:45:00 +0100"},
		},
		{
			"Havana, spring: midnight is skipped", "@daily", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z",
			[]string{"03-08 01:00:00 -0400", "03-09 00:00:00 -0400"},
		},
		{
			"Apia: a day that never was", "0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-31T12:00:00Z",
			[]string{"12-29 12:00:00 -1000", "12-31 00:00:00 +1400", "12-31 12:00:00 +1400"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := slots(t, c.schedule, c.zone, c.from, c.to); !slices.Equal(got, c.want) {
				t.Errorf("%q: %q, want %q", c.schedule, got, c.want)
			}
		})
	}
}

func TestSlotsOfFields(t *testing.T) {
	for _, c := range []struct {
		schedule, from, to string
		want               []string
	}{
		{"0 0 29 2 *", "2095-01-01T00:00:00Z", "2105-01-01T00:00:00Z", []string{"02-29 00:00:00 +0000", "02-29 00:00:00 +0000"}},
		{"0 9 1 * mon", "2026-06-01T12:00:00Z", "2026-06-16T00:00:00Z", []string{"06-08 09:00:00 +0000", "06-15 09:00:00 +0000"}},
		{"0 9 13 * fri", "2026-11-08T00:00:00Z", "2026-11-21T00:00:00Z", []string{"11-13 09:00:00 +0000", "11-20 09:00:00 +0000"}},
		{"0 0 * * 7", "2026-11-28T12:00:00Z", "2026-12-06T12:00:00Z", []string{"11-29 00:00:00 +0000", "12-06 00:00:00 +0000"}},
		{"10-59/20 59 23 31 dec ?", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", []string{"12-31 23:59:10 +0000", "12-31 23:59:30 +0000", "12-31 23:59:50 +0000"}},
		{"@every 1500ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:04Z", []string{"01-01 00:00:01 +0000", "01-01 00:00:03 +0000"}},
		{"@yearly", "2026-01-01T00:00:00Z", "2027-06-01T00:00:00Z", []string{"01-01 00:00:00 +0000"}},
	} {
		if got := slots(t, c.schedule, "UTC", c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.schedule, got, c.want)
		}
	}
}

// Of any schedule the next slot does not depend on from where before it one looks.
func TestTheNextSlotIsTheSameFromAnyTimeBeforeIt(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		for _, schedule := range []string{"*/7 * * * *", "*/7 1-3 * * *", "30 2 * * *", "0 0 * * sun"} {
			s, err := cron.Parse(schedule, zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, day := range []string{"2026-03-08T00:00:00Z", "2026-03-28T20:00:00Z", "2026-10-03T10:00:00Z", "2026-10-24T20:00:00Z", "2026-10-31T20:00:00Z", "2026-04-04T10:00:00Z"} {
				at := moment(t, day)
				next, _ := s.Next(at, at)
				for ; at.Before(moment(t, day).Add(14 * time.Hour)); at = at.Add(time.Minute) {
					if !at.Before(next) {
						was := next
						if next, _ = s.Next(next, next); !next.After(was) {
							t.Fatalf("%q in %s: %s after %s", schedule, zone, next, was)
						}
					}
					if got, _ := s.Next(at, at); !got.Equal(next) {
						t.Fatalf("%q in %s: after %s comes %s, and it was to be %s", schedule, zone, at, got, next)
					}
				}
			}
		}
	}
}

// Beyond the changes that a zone lists it goes on by a rule, for which package time ends leap years a day early.
func TestSlotsGoOnOverTheEndOfALeapYear(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "Australia/Sydney", "America/New_York"} {
		for _, schedule := range []string{"0 6 * * *", "30 */6 * * *", "15 * * * *"} {
			s, err := cron.Parse(schedule, zone)
			if err != nil {
				t.Fatal(err)
			}
			for _, year := range []int{2040, 2044} {
				at := time.Date(year, 12, 30, 0, 0, 0, 0, time.UTC)
				for range 4 * 24 {
					next, ok := s.Next(at, at)
					if !ok || !next.After(at) || next.Sub(at) > 25*time.Hour {
						t.Fatalf("%s in %s: %s after %s", schedule, zone, next, at)
					}
					at = next
				}
			}
			if n := len(s.Changes(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC), 10)); n != 4 {
				t.Errorf("%s has %d changes of its clocks in two years", zone, n)
			}
		}
	}
}

func TestBadSchedulesAreRefusedByFieldAndLimit(t *testing.T) {
	for _, c := range []struct{ schedule, zone, field, limit, says string }{
		{"", "", "schedule", "", "is required"},
		{"@every 1ns", "", "schedule", "cron_period", "at least one second"},
		{"@every 999ms", "", "schedule", "cron_period", "at least one second"},
		{"@every 200000h", "", "schedule", "cron_period_most", "at most"},
		{"@every soon", "", "schedule", "", "duration"},
		{"@fortnightly", "", "schedule", "", "must be five or six fields"},
		{"0 0 31 2 *", "", "schedule", "", "never fires"},
		{"0 0 30 2 *", "", "schedule", "", "never fires"},
		{"0 0 31 4,6,9,11 *", "", "schedule", "", "never fires"},
		{"* * * *", "", "schedule", "", "it has 4"},
		{"* * * * * * *", "", "schedule", "", "it has 7"},
		{"60 * * * *", "", "schedule", "", `the minute "60"`},
		{"* 24 * * *", "", "schedule", "", `the hour "24"`},
		{"* * 0 * *", "", "schedule", "", `the day of month "0"`},
		{"* * * 13 *", "", "schedule", "", `the month "13"`},
		{"* * * * 8", "", "schedule", "", `the day of week "8"`},
		{"*/0 * * * *", "", "schedule", "", "the step"},
		{"5-1 * * * *", "", "schedule", "", "the range"},
		{"* * L * *", "", "schedule", "", `"L"`},
		{"+5 * * * *", "", "schedule", "", `"+5"`},
		{strings.Repeat("0,", 200) + "0 * * * *", "", "schedule", "schedule_bytes", "too long"},
		{"* * * * *", "Mars/Olympus", "zone", "", "IANA"},
		{"* * * * *", "Local", "zone", "", "IANA"},
		{"* * * * *", "../etc/passwd", "zone", "", "IANA"},
		{"* * * * *", strings.Repeat("x", 65), "zone", "zone_bytes", "too long"},
	} {
		_, err := cron.Parse(c.schedule, c.zone)
		var e *cron.Error
		if !errors.As(err, &e) || e.Field != c.field || e.Limit != c.limit || !strings.Contains(e.Message, c.says) {
			t.Errorf("%q in %q: %v, want field %s, limit %q, %q", c.schedule, c.zone, err, c.field, c.limit, c.says)
		}
	}
}

func TestWords(t *testing.T) {
	for schedule, want := range map[string]string{
		"@every 90s":            "every 1 minute 30 seconds",
		"@every 1h":             "every hour",
		"@hourly":               "every hour",
		"@daily":                "at 00:00 every day",
		"0 2 * * *":             "at 02:00 every day",
		"*/5 * * * *":           "every 5 minutes",
		"* * * * *":             "every minute",
		"* * * * * *":           "every second",
		"*/10 * * * * *":        "every 10 seconds",
		"15,45 * * * *":         "at minutes 15 and 45 of every hour",
		"0 9,17 * * mon-fri":    "at 09:00 and 17:00 on Monday to Friday",
		"30 4 1,15 * *":         "at 04:30 on days 1 and 15 of the month",
		"0 0 1 1 *":             "at 00:00 on day 1 of the month in January",
		"0 0 13 * 5":            "at 00:00 on day 13 of the month or on Friday",
		"*/7 9-17 * * *":        "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of hours 9 to 17 every day",
		"*/15 9-17 * jun,aug *": "at every 15 minutes of hours 9 to 17 every day in June and August",
		"5 0 12 * * *":          "at 12:00:05 every day",
	} {
		s, err := cron.Parse(schedule, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Words(); got != want {
			t.Errorf("%q: %q, want %q", schedule, got, want)
		}
	}
}

// What a change of the clocks is said to do is what then happens.
func TestChangesSayWhatThenHappens(t *testing.T) {
	for _, c := range []struct {
		schedule, zone, from string
		words                []string
		slots                []int
	}{
		{"30 2 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", []string{"02:30 is skipped; it fires at 03:00", "02:30 comes twice; it fires the first time"}, []int{1, 1}},
		{"*/20 * * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", []string{"02:00 is skipped; slots go by time that passes, so none is moved", "02:00 comes twice; slots go by time that passes, so both fire"}, []int{0, 3}},
		{"0 12 * * *", "America/New_York", "2026-01-01T00:00:00Z", []string{"no slot is affected", "no slot is affected"}, []int{0, 0}},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-01-01T00:00:00Z", []string{"01:45 comes twice; it fires the first time", "no slot is affected"}, []int{1, 0}},
		{"@every 1h", "Europe/Berlin", "2026-01-01T00:00:00Z", nil, nil},
	} {
		s, err := cron.Parse(c.schedule, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		from := moment(t, c.from)
		got := s.Changes(from, from.AddDate(1, 0, 0), 4)
		if len(got) != len(c.words) {
			t.Fatalf("%q: %+v", c.schedule, got)
		}
		for i, change := range got {
			if change.Words != c.words[i] || len(change.Slots) != c.slots[i] {
				t.Errorf("%q: %+v, want %q and %d slots", c.schedule, change, c.words[i], c.slots[i])
			}
			for _, slot := range change.Slots {
				if next, _ := s.Next(slot.Add(-time.Millisecond), from); !next.Equal(slot) {
					t.Errorf("%q: the change at %s names the slot %s, and the next one is %s", c.schedule, change.At, slot, next)
				}
			}
		}
	}
}

func TestTheShortestTimeBetweenSlots(t *testing.T) {
	for schedule, want := range map[string]time.Duration{
		"@every 90s": 90 * time.Second, "0 0 1,31 * *": 24 * time.Hour, "0 9,17 * * *": 8 * time.Hour, "* * * * * *": time.Second,
	} {
		s, err := cron.Parse(schedule, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Shortest(moment(t, "2026-01-01T00:00:00Z"), 1000); got != want {
			t.Errorf("%q: %s, want %s", schedule, got, want)
		}
	}
}
