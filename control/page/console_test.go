package page_test

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"croft"
	"croft/control/api"
	"croft/internal/testing/browser"
	"croft/internal/testing/patient"
)

// dial opens a WebSocket of the page as its scripts do.
func (v *visitor) dial(path string, header http.Header) (*websocket.Conn, int) {
	v.t.Helper()
	socket, answer, err := websocket.Dial(v.t.Context(), v.url+path,
		&websocket.DialOptions{HTTPClient: v.http, HTTPHeader: header})
	if err != nil && answer == nil {
		v.t.Fatal(err)
	}
	if err == nil {
		v.t.Cleanup(func() { _ = socket.CloseNow() })
	}
	return socket, answer.StatusCode
}

// attach attaches to a part of an instance.
func (v *visitor) attach(path string) *websocket.Conn {
	v.t.Helper()
	socket, status := v.dial(path, http.Header{"Origin": {v.url}, "Sec-Fetch-Site": {"same-origin"}})
	if socket == nil {
		v.t.Fatalf("%s: got %d", path, status)
	}
	return socket
}

// hears reads from a socket until it has said a text.
func hears(t *testing.T, socket *websocket.Conn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	all := ""
	for !strings.Contains(all, text) {
		_, more, err := socket.Read(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		all += string(more)
	}
}

// ends reads from a socket until it ends.
func ends(t *testing.T, socket *websocket.Conn) websocket.CloseError {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	for {
		if _, _, err := socket.Read(ctx); err != nil {
			var end websocket.CloseError
			end.Code = websocket.CloseStatus(err)
			if end.Code == -1 {
				t.Fatal(err)
			}
			end.Reason = err.Error()
			return end
		}
	}
}

func consolesAreForThePage(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	for _, part := range []string{"/console/socket", "/screen/socket"} {
		for name, header := range map[string]http.Header{
			"nowhere":       {},
			"another site":  {"Origin": {"https://elsewhere.example"}},
			"a near site":   {"Origin": {v.url}, "Sec-Fetch-Site": {"same-site"}},
			"a file":        {"Origin": {"null"}},
			"another port":  {"Origin": {"http://127.0.0.1:1"}},
			"another place": {"Origin": {v.url}, "Sec-Fetch-Site": {"cross-site"}},
		} {
			if _, status := v.dial(at+part, header); status != http.StatusForbidden {
				t.Errorf("%s from %s: got %d", part, name, status)
			}
		}
		stranger := s.visitor(t)
		stranger.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if _, status := stranger.dial(at+part, http.Header{"Origin": {v.url}}); status != http.StatusSeeOther {
			t.Errorf("%s without a session: got %d", part, status)
		}
	}
	for token, says := range map[string]string{"berta": "not_found", "reader": "it takes the role"} {
		end := ends(t, s.login(t, token).attach(at+"/console/socket"))
		if !strings.Contains(end.Reason, says) {
			t.Errorf("the console as %s: %+v", token, end)
		}
	}
}

func takesConsolesOver(t *testing.T, s served, at string) {
	first, second := s.login(t, "anna"), s.login(t, "anna")
	one := first.attach(at + "/console/socket")
	if err := one.Write(t.Context(), websocket.MessageBinary, []byte("<b>first\r")); err != nil {
		t.Fatal(err)
	}
	hears(t, one, "<b>first")
	if end := ends(t, second.attach(at+"/console/socket")); end.Code != 4000 ||
		!strings.Contains(end.Reason, string(api.InUse)+" the console of web is attached elsewhere") {
		t.Errorf("a console that is in use: %+v", end)
	}
	two := second.attach(at + "/console/socket?takeover=yes")
	if err := two.Write(t.Context(), websocket.MessageBinary, []byte("second\r")); err != nil {
		t.Fatal(err)
	}
	hears(t, two, "second")
	if end := ends(t, one); end.Code != websocket.StatusNormalClosure {
		t.Errorf("the console that was taken over: %+v", end)
	}
	first.get(http.StatusOK, at+"/console")
	first.says("&lt;b&gt;first") // what browsers without scripts see
	first.hides("<b>first")
}

func consolesEndWithTheirSession(t *testing.T, s served, at string) {
	v := s.login(t, "anna")
	socket := v.attach(at + "/console/socket?takeover=yes")
	if err := socket.Write(t.Context(), websocket.MessageBinary, []byte("here\r")); err != nil {
		t.Fatal(err)
	}
	hears(t, socket, "here")
	v.get(http.StatusOK, "/ui/instances")
	v.send(http.StatusOK, "/ui/logout", nil)
	if end := ends(t, socket); end.Code != 4001 {
		t.Errorf("after the logout: %+v", end)
	}
}

func showsScreens(t *testing.T, s served, at string) {
	blind := s.create(t, "anna", "blind")
	v := s.login(t, "anna")
	v.get(http.StatusConflict, "/ui/instances/"+string(blind.ID)+"/screen")
	v.says("made without --display vnc")
	if _, err := s.client(t, "anna").DestroyInstance(t.Context(), api.InstanceRemoval{
		InstanceChange: api.InstanceChange{InstanceNamed: api.InstanceNamed{ID: string(blind.ID)}}}); err != nil {
		t.Error(err)
	}
	v.get(http.StatusOK, at)
	v.says(at + "/screen?project=anna")
	policy := v.get(http.StatusOK, at+"/screen").Get("Content-Security-Policy")
	if policy != strings.Replace(v.get(http.StatusOK, at).Get("Content-Security-Policy"), "img-src 'self'",
		"img-src 'self' data:", 1) {
		t.Errorf("the policy of a screen is %s", policy)
	}
	kind := v.get(http.StatusOK, at+"/screen/picture").Get("Content-Type")
	if kind != "image/png" || !strings.HasPrefix(v.text, "\x89PNG") {
		t.Errorf("the picture is %s: %q", kind, v.text)
	}
	hears(t, v.attach(at+"/screen/socket"), "RFB 003.008\n")
}

// useConsole types in a console, and loses the server and the guest.
func useConsole(t *testing.T, s served, b *browser.Browser, at string, check func(string)) {
	b.Do(chromedp.EmulateViewport(1280, 900))
	b.Go(at + "/console")
	attached := `document.querySelector("#attached.on") !== null`
	paste := func(text string) {
		browser.Eval[any](b, `(() => { const d = new DataTransfer(); d.setData("text/plain", "`+text+`\r");
			document.querySelector("#terminal textarea").dispatchEvent(
				new ClipboardEvent("paste", { clipboardData: d, bubbles: true })); })()`)
	}
	shows := func(text string) { b.Until(`document.querySelector("#terminal").innerText.includes("` + text + `")`) }
	b.Until(attached + ` && document.activeElement.closest("#terminal") !== null`)
	b.Do(chromedp.KeyEvent("\r"))
	paste(`\x1b[38;2;255;120;0mhello`)
	shows("hello")
	check("console-anna")
	s.restart(t)
	b.Until("!(" + attached + ")")
	b.Until(attached)
	paste("back")
	shows("back")
	v := s.login(t, "anna")
	path := strings.TrimPrefix(at, s.url)
	other := v.attach(path + "/console/socket?takeover=yes")
	b.Until(`!document.querySelector("#takeover").hidden`)
	b.Do(chromedp.Click("#takeover"))
	b.Until(attached)
	ends(t, other)
	v.get(http.StatusOK, path)
	v.send(http.StatusOK, path+"/hard-stop", nil)
	b.Until(`document.querySelector("#attached").innerText.includes("only while it runs")`)
	v.send(http.StatusOK, path+"/start", nil)
	b.Until(attached)
	paste("again")
	shows("again")
}

// useScreen looks at a screen, and presses Ctrl-Alt-Del.
func useScreen(t *testing.T, b *browser.Browser, at string, keys <-chan uint32, check func(string)) {
	b.Go(at + "/screen")
	b.Until(`document.querySelector("#attached.on") !== null`)
	pixel := `(() => { const c = document.querySelector("#screen canvas");
		return c && c.width > 0 ? [...c.getContext("2d").getImageData(1, 1, 1, 1).data].join() : ""; })()`
	b.Until(pixel + ` === "0,0,255,255"`)
	check("screen-anna")
	b.Do(chromedp.Click("#ctrl-alt-del"))
	var got []uint32
	for len(got) < 6 {
		got = append(got, <-keys)
	}
	if want := []uint32{0xffe3, 0xffe9, 0xffff, 0xffff, 0xffe9, 0xffe3}; !slices.Equal(got, want) {
		t.Errorf("Ctrl-Alt-Del sends %x, want %x", got, want)
	}
	b.Do(chromedp.SendKeys("#text", "aéA\r"), chromedp.Click("#type button"))
	got = nil
	for len(got) < 10 {
		got = append(got, <-keys)
	}
	if want := []uint32{'a', 'a', 'é', 'é', 0xffe1, 'A', 'A', 0xffe1, 0xff0d, 0xff0d}; !slices.Equal(got, want) {
		t.Errorf("a text sends %x, want %x", got, want)
	}
}

// screens answers for screens instead of the simulated guests, which only greet: each is blue, and sends the keys that
// are pressed or released.
func screens(keys chan<- uint32) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/display") {
				next.ServeHTTP(w, r)
				return
			}
			socket, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			conn := websocket.NetConn(r.Context(), socket, websocket.MessageBinary)
			defer conn.Close()
			_ = blue(conn, keys) // the browser leaves
		})
	}
}

const blueWidth, blueHeight = 64, 48

// blue is a server of VNC with a blue screen.
func blue(c io.ReadWriter, keys chan<- uint32) error {
	read := func(n int) ([]byte, error) {
		b := make([]byte, n)
		_, err := io.ReadFull(c, b)
		return b, err
	}
	say := func(parts ...[]byte) error { _, err := c.Write(slices.Concat(parts...)); return err }
	if err := say([]byte("RFB 003.008\n")); err != nil {
		return err
	}
	if _, err := read(12); err != nil {
		return err
	}
	if err := say([]byte{1, 1}); err != nil { // one kind of security: none
		return err
	}
	if _, err := read(1); err != nil {
		return err
	}
	if err := say(make([]byte, 4)); err != nil { // accepted
		return err
	}
	if _, err := read(1); err != nil {
		return err
	}
	size := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, blueWidth), blueHeight)
	format := []byte{32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0}
	if err := say(size, format, []byte{0, 0, 0, 4}, []byte("blue")); err != nil {
		return err
	}
	for {
		kind, err := read(1)
		if err != nil {
			return err
		}
		switch kind[0] {
		case 0: // the format of pixels: noVNC asks for red, green and blue in this order
			_, err = read(19)
		case 2:
			var n []byte
			if n, err = read(3); err == nil {
				_, err = read(4 * int(binary.BigEndian.Uint16(n[1:])))
			}
		case 3:
			if _, err = read(9); err == nil {
				err = say([]byte{0, 0, 0, 1}, make([]byte, 4), size, make([]byte, 4),
					slices.Repeat([]byte{0, 0, 255, 255}, blueWidth*blueHeight))
			}
		case 4:
			var key []byte
			if key, err = read(7); err == nil {
				keys <- binary.BigEndian.Uint32(key[3:])
			}
		case 5:
			_, err = read(5)
		case 6:
			var head []byte
			if head, err = read(7); err == nil {
				_, err = read(int(binary.BigEndian.Uint32(head[3:])))
			}
		default:
			return croft.Errorf(croft.Invalid, "message %d", kind[0])
		}
		if err != nil {
			return err
		}
	}
}
