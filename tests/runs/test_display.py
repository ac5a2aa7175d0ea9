"""Lines about work before a training."""
from spinup.runs.display import tell_progress


# Turned red by: a line for each batch; the time of what is done for the time left; a line when all is done; output that
# --quiet does not stop.
def test_long_work_says_how_much_is_left(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("spinup.runs.display.time.perf_counter", lambda: now[0])
    tell = tell_progress("sampling 4,000 responses", 4000, True)
    for seconds, done in ((5, 100), (20, 1000), (25, 1500), (95, 2000), (400, 4000)):
        now[0] = 100 + seconds
        tell(done)
    assert capsys.readouterr().out == ("sampling 4,000 responses\n1,000 of 4,000 done, 1 min 00 s left\n"
                                       "2,000 of 4,000 done, 1 min 35 s left\n")
    now[0] = 0.0
    tell = tell_progress("sampling", 10, False)
    now[0] = 50.0
    tell(5)
    assert capsys.readouterr().out == ""
