package page

import (
	"testing"
	"time"
)

func TestATokenIsReplacedInTheLastPartOfItsLife(t *testing.T) {
	const day = 24 * time.Hour
	for _, one := range []struct {
		life, left time.Duration
		want       bool
	}{
		{90 * day, 15 * day, false},
		{90 * day, 13 * day, true},
		{90 * day, -time.Second, false},
		{7 * day, 2 * day, false},
		{7 * day, day, true},
		{12 * time.Hour, time.Hour, false},
	} {
		if is := endsSoon(one.life, one.left); is != one.want {
			t.Errorf("%v before the end of %v: %v, want %v", one.left, one.life, is, one.want)
		}
	}
}

func TestSilentHostsAreNoPartOfTheCapacity(t *testing.T) {
	var claimed, offered mainAmounts
	claimed.VCPU, offered.VCPU = 4, 8
	sum := sumOf([]*hostRow{
		rowOfHost(briefHost{Name: "a", Alive: true, Claimed: claimed, Offered: &offered}),
		rowOfHost(briefHost{Name: "b", Claimed: claimed, Offered: &mainAmounts{}}),
	})
	if sum[0].Text() != "4 of 8" {
		t.Errorf("a host that is ready and a silent one have %s, want 4 of 8", sum[0].Text())
	}
}
