import pytest

from spawner_config.access.invitations.name_list import ListError, decode, read_names


def names(text):
    return [(entry.line, entry.name) for entry in read_names(text)]


@pytest.mark.parametrize(
    "text",
    [
        "ada\n\n grace \n",
        "username\n\nada\ngrace",
        "Username,e-mail\n\nada,ada@example.org\ngrace,",
        "name;USERNAME\r\n;\r\nAda;ada\r\nGrace;grace\r\n",
        'name\tusername\n\n"Lovelace, Ada"\tada\nGrace\tgrace',
    ],
)
def test_names_come_from_lines_or_from_the_column_of_a_csv_file(text):
    found = names(text)
    assert [name for _, name in found] == ["ada", "grace"]
    assert found[1][0] - found[0][0] in {1, 2}


def test_names_have_the_numbers_of_their_lines():
    assert names("username,group\nada,1\n\ngrace,2\n,3\nlinus") == [(2, "ada"), (4, "grace"), (5, ""), (6, "linus")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no names"),
        (" \n,,\n", "has no names"),
        ("username\n", "has no names"),
        ("e-mail,username\n\n,\n", "has no names"),
        ("ada,1\ngrace,2", "several columns.*one must be username"),
        ('username\n"ada', "Line 2 of the list cannot be read"),
        ("\n".join(f"u{number}" for number in range(501)), "has 501 names. Split it into lists of at most 500"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_with_the_remedy(text, reason):
    with pytest.raises(ListError, match=reason):
        read_names(text)


def test_files_of_spreadsheets_are_read_if_they_are_utf_8():
    assert names(decode("username\njürgen".encode("utf-8-sig"))) == [(2, "jürgen")]
    with pytest.raises(ListError, match="Save it as CSV UTF-8"):
        decode("username\nandré".encode("latin-1"))
