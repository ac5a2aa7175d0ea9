"""Files that several processes write."""
import threading

from spinup.runs.files import write_whole


# Catches: one temporary file for two writers, which mixes their texts or loses one of them.
def test_simultaneous_writers_leave_one_complete_text(tmp_path):
    path, begun, ended = tmp_path / "x.json", threading.Event(), threading.Event()

    def slowly(file):
        file.write(b"first, ")
        begun.set()
        ended.wait()
        file.write(b"complete")
    first = threading.Thread(target=write_whole, args=(path, slowly))
    first.start()
    begun.wait()
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    ended.set()
    first.join()
    assert path.read_bytes() == b"first, complete" and [*tmp_path.iterdir()] == [path]
