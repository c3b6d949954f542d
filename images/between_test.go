package images

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestBetween(t *testing.T) {
	have := map[string]string{"6.12.107+deb13": "6.12.107-1", "6.1.0-50": "6.1.170-1", "7.2.12+deb13": "", "6.16.3+deb13": "", "6.12.95+deb13": "", "6.9.10+deb13": ""}
	of, err := targetOf("amd64")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ from, to, want string }{
		{"6.1", "6.12", "6.1.0-50 6.9.10+deb13 6.12.95+deb13 6.12.107+deb13"},
		{"6.1.170", "6.9", "6.1.0-50 6.9.10+deb13"},
		{"6.12.95+deb13", "7.2", "6.12.95+deb13 6.12.107+deb13 6.16.3+deb13 7.2.12+deb13"},
	} {
		if got, err := between(of, have, tt.from, tt.to); err != nil || !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%s to %s: %v, %v", tt.from, tt.to, got, err)
		}
	}
	var none *NoKernelError
	if _, err := between(of, have, "6.12", "8.0"); !errors.As(err, &none) || none.Version != "8.0" || !strings.Contains(err.Error(), "6.16.3+deb13") {
		t.Errorf("got %v", err)
	}
	for _, to := range []string{"6.1", "6.12.107"} {
		var order *OrderError
		if _, err := between(of, have, "6.12", to); !errors.As(err, &order) || order.From != "6.12.107+deb13" {
			t.Errorf("6.12 to %s: %v", to, err)
		}
	}
}
