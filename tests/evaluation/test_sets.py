from spikehtr.evaluation.sets import short_names


def test_short_names_stay_apart():
    names = ["x/a", "y/a", "z/b", "z/b", "store:q/c.arrow", "/"]
    assert short_names(names) == {
        "x/a": "x/a",
        "y/a": "y/a",
        "z/b": "b",
        "store:q/c.arrow": "c.arrow",
        "/": "/",
    }
