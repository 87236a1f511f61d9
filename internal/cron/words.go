package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// listed is how many times of a day are named one by one.
const listed = 6

// Words says in English when the schedule holds, without its zone.
func (s *Schedule) Words() string {
	if s.every > 0 {
		return "every " + duration(s.every)
	}
	text, daily := s.timeWords()
	days := s.dayWords()
	if days == "" && daily {
		days = " every day"
	}
	return text + days + s.monthWords()
}

// duration writes a duration with its units as words, the largest first.
func duration(d time.Duration) string {
	var parts []string
	for _, u := range [...]struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}, {time.Millisecond, "millisecond"}} {
		if n := d / u.unit; n > 0 {
			parts = append(parts, count(int(n), u.name))
			d -= n * u.unit
		}
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], "1 ")
	}
	return strings.Join(parts, " ")
}

// count writes how many there are of something.
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// timeWords says at which times of a day the schedule holds. daily says that a day has to follow.
func (s *Schedule) timeWords() (text string, daily bool) {
	h, m, sec := bits.OnesCount64(s.hours), bits.OnesCount64(s.minutes), bits.OnesCount64(s.seconds)
	switch {
	case h*m*sec <= listed && h < 24:
		var times []string
		for _, hour := range values(s.hours) {
			for _, minute := range values(s.minutes) {
				for _, second := range values(s.seconds) {
					times = append(times, clock(int64(hour*3600+minute*60+second)))
				}
			}
		}
		return "at " + and(times), true
	case s.hours == allHours && s.minutes == allSixty:
		if n, ok := step(s.seconds, 60); ok {
			return "every " + plural(n, "second"), false
		}
		if s.seconds == 1 {
			return "every minute", false
		}
		return "at " + numbers("second", s.seconds) + " of every minute", false
	case s.hours == allHours && s.seconds == 1:
		if n, ok := step(s.minutes, 60); ok {
			return "every " + plural(n, "minute"), false
		}
		if s.minutes == 1 {
			return "every hour", false
		}
		return "at " + numbers("minute", s.minutes) + " of every hour", false
	}
	var parts []string
	if s.seconds != 1 {
		parts = append(parts, each("second", s.seconds, 60))
	}
	parts = append(parts, each("minute", s.minutes, 60), each("hour", s.hours, 24))
	return "at " + strings.Join(parts, " of "), true
}

// plural is a period; 1 of it has no number.
func plural(n int, of string) string {
	if n == 1 {
		return of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// each names the values of a field within a larger unit.
func each(of string, mask uint64, size int) string {
	if n, ok := step(mask, size); ok {
		if n == 1 {
			return "every " + of
		}
		return fmt.Sprintf("every %d %ss", n, of)
	}
	return numbers(of, mask)
}

// step reports whether a mask has every nth value from 0 on, so that they follow each other evenly.
func step(mask uint64, size int) (n int, ok bool) {
	if mask&1 == 0 || mask == 1 {
		return 0, false
	}
	n = bits.TrailingZeros64(mask &^ 1)
	var want uint64
	for v := 0; v < size; v += n {
		want |= 1 << v
	}
	return n, size%n == 0 && mask == want
}

// dayWords says on which days the schedule holds; nothing when it is every day.
func (s *Schedule) dayWords() string {
	var parts []string
	if s.days != allDays {
		parts = append(parts, "on "+numbers("day", s.days)+" of the month")
	}
	if s.weekdays != allWeekdays {
		parts = append(parts, "on "+spans(s.weekdays, func(v int) string { return time.Weekday(v).String() }))
	}
	if len(parts) == 0 {
		return ""
	}
	return " " + strings.Join(parts, " or ")
}

// monthWords says in which months the schedule holds; nothing when it is every month.
func (s *Schedule) monthWords() string {
	if s.months == allMonths {
		return ""
	}
	return " in " + spans(s.months, func(v int) string { return time.Month(v).String() })
}

// numbers names the values of a field.
func numbers(of string, mask uint64) string {
	if bits.OnesCount64(mask) > 1 {
		of += "s"
	}
	return of + " " + spans(mask, strconv.Itoa)
}

// spans lists the values of a mask; three and more that follow each other are a span.
func spans(mask uint64, name func(int) string) string {
	list := values(mask)
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j >= i+2 {
			parts = append(parts, name(list[i])+" to "+name(list[j]))
		} else {
			for _, v := range list[i : j+1] {
				parts = append(parts, name(v))
			}
		}
		i = j + 1
	}
	return and(parts)
}

// and joins a list as English does.
func and(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// values are the bits of a mask.
func values(mask uint64) (out []int) {
	for v := next(mask, 0); v >= 0; v = next(mask, v+1) {
		out = append(out, v)
	}
	return out
}
