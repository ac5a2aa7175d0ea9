"""Our character tokenizer, and tokenizers of Hugging Face, with tiny ones that are created here."""
import json
import sys

import pytest
import tokenizers
import transformers

from llm.policy.hf import HFTokenizer, load_tokenizer
from llm.policy.policy import Growing
from llm.policy.tokenizer import CharTokenizer
from spinup.errors import UserError

# Chat templates like that of Qwen, which adds a system turn, and that of Llama, which begins with a special token.
QWEN = ("<|im_start|>system\nBe good.<|im_end|>\n{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
LLAMA = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}"
         " {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}")


@pytest.fixture
def made(tmp_path):
    """A folder with a byte tokenizer and these special tokens; with `bos`, it puts this token in front of a text."""
    def make(*, template=None, eos=None, bos=None, pad=None, **files):
        letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        core = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
        core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = tokenizers.decoders.ByteLevel()
        core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>"])
        core.add_tokens(["<think>"])
        if bos:
            core.post_processor = tokenizers.processors.TemplateProcessing(
                single=f"{bos} $A", special_tokens=[(bos, core.token_to_id(bos))])
        whole = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token=eos, bos_token=bos, pad_token=pad)
        whole.chat_template = template
        whole.save_pretrained(tmp_path)
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path
    return make


def changed(folder, name, **content):
    """Change a JSON file in the folder of a tokenizer."""
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | content))
    return folder


def names(tokenizer, ids):
    """The text of ids, with the special tokens."""
    return tokenizer.tokenizer.decode(ids)


# Catches: ids that start at 0; a sorted alphabet; an end token that is skipped.
def test_characters_have_ids_in_the_order_of_the_alphabet():
    tokenizer = CharTokenizer("ba+")
    assert tokenizer.end == 0 and tokenizer.vocab_size == 4
    assert tokenizer.encode("ab+a") == tokenizer.prompt("ab+a") == [2, 1, 3, 2]
    assert tokenizer.decode([2, 1, 3]) == "ab+" and tokenizer.decode([2, 0, 1, 0]) == "a"
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""


# Catches: a KeyError; characters that are skipped; a second id for the same character.
def test_unknown_or_repeated_characters_are_refused():
    with pytest.raises(UserError, match="'z' is not in the alphabet 'abc'; leave it out, or use a task and a model"):
        CharTokenizer("abc").encode("abzq")
    with pytest.raises(UserError, match="the alphabet 'abca' has a character twice; list each one once"):
        CharTokenizer("abca")


# Catches: an alphabet that is sorted in saving; an attempt to load the other tokenizer first.
def test_character_tokenizer_is_loaded_from_a_folder(tmp_path):
    CharTokenizer("zä\n\\\"a").save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert isinstance(again, CharTokenizer) and again.alphabet == "zä\n\\\"a"
    for text in ("{", "{}", "[]"):
        (tmp_path / "char_tokenizer.json").write_text(text)
        with pytest.raises(UserError, match=r'char_tokenizer.json is damaged; write \{"alphabet": "..."\}'):
            load_tokenizer(tmp_path)


# Catches: a missing add_generation_prompt; the BatchEncoding itself; `encode` of the rendered text, which adds `<s>`.
def test_prompt_is_a_user_turn_of_a_chat(made):
    tokenizer = HFTokenizer(made(template=QWEN, eos="<|im_end|>", bos="<s>", pad="<|endoftext|>"))
    ids = tokenizer.prompt("1+1=")
    assert type(ids) is list and all(type(i) is int for i in ids)
    assert names(tokenizer, ids) == ("<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\n1+1=<|im_end|>\n"
                                     "<|im_start|>assistant\n")


# Catches: `encode` of the rendered text, `<s><s>[INST]`; the first token after the words as end token.
def test_first_special_token_is_not_doubled(made):
    tokenizer = HFTokenizer(made(template=LLAMA, eos="</s>", bos="<s>"))
    assert names(tokenizer, tokenizer.prompt("hi")) == "<s>[INST] hi [/INST]"
    assert tokenizer.end == tokenizer.tokenizer.convert_tokens_to_ids("</s>")         # after a space


# Catches: special tokens from `encode`, which is for the middle of a text; a whole prompt without its first special
# token; spaces that are cleaned up.
def test_without_a_chat_template_the_prompt_is_the_text(made):
    tokenizer = HFTokenizer(made(eos="</s>", bos="<s>"))
    assert names(tokenizer, tokenizer.prompt("hi")) == "<s>hi" and names(tokenizer, tokenizer.encode("hi")) == "hi"
    written = tokenizer.encode("hi</s>", literal=True)
    assert tokenizer.end in tokenizer.encode("hi</s>") and tokenizer.end not in written
    tokenizer.tokenizer.clean_up_tokenization_spaces = True              # as some folders set it
    tokenizer.tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    assert tokenizer.decode(tokenizer.encode("hi , you !")) == "hi , you !"


# Catches: eos_token before the template, which is wrong for base models of Qwen2.5; the refusal of a template without
# an end token; the last entry of a list; the files before the tokenizer.
def test_end_token_comes_from_the_template_tokenizer_or_config_files(made):
    def end(**given):
        tokenizer = HFTokenizer(made(**given))
        return tokenizer.tokenizer.convert_ids_to_tokens(tokenizer.end)
    assert end(template=QWEN, eos="<|endoftext|>", pad="<|endoftext|>") == "<|im_end|>"
    assert end(template=QWEN, eos="<|im_end|>", pad="<|im_end|>", config={"eos_token_id": 7}) == "<|im_end|>"
    assert end(template="{{ messages[-1].content }}", eos="</s>") == "</s>"
    assert end(eos="</s>", pad="<|endoftext|>", generation_config={"eos_token_id": 7}) == "</s>"
    folder = made(config={"eos_token_id": 258}, generation_config={"eos_token_id": [260, 258]})
    assert HFTokenizer(folder).end == 260
    (folder / "generation_config.json").unlink()
    assert HFTokenizer(folder).end == 258
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="names no end token; add an eos_token to its tokenizer_config"):
        HFTokenizer(folder)


# Catches: a single end token; an eos_token that is ignored beside a template; config.json although the other file
# exists; only the first entry of a list; another end token than the template's to write.
@pytest.mark.parametrize("given", [
    {"eos": "<|endoftext|>"}, {"eos": "<|im_end|>", "config": {"eos_token_id": [258, 256]}},
    {"eos": "<|im_end|>", "generation_config": {"eos_token_id": [256, 258]}, "config": {"eos_token_id": 52}}], ids=str)
def test_each_of_several_end_tokens_ends_a_response(given, made):
    tokenizer = HFTokenizer(made(template=QWEN, pad="<|endoftext|>", **given))
    for text in ("4<|endoftext|>2<|im_end|>", "4<|im_end|>2<|endoftext|>"):
        assert tokenizer.decode(tokenizer.encode(text)) == "4"
    assert names(tokenizer, [tokenizer.end]) == "<|im_end|>" and tokenizer.ends == {256, 258}


# Catches: special tokens in the text; text after the end token.
def test_response_is_decoded_up_to_its_end_token(made):
    tokenizer = HFTokenizer(made(template=QWEN, eos="<|im_end|>", pad="<|endoftext|>"))
    text = "<think>é 2</think>"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode("<s>4<|endoftext|>2<|im_end|>\nand on")) == "42"
    assert tokenizer.vocab_size == 256 + 6 and tokenizer.decode([*tokenizer.encode("a"), 500]) == "a"


# Catches: the rules of transformers' class GPT2Tokenizer in place of the file's, as for SmolLM2.
def test_text_is_split_by_the_rules_of_tokenizer_json(tmp_path):
    parts = tokenizers.pre_tokenizers
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = parts.Sequence([parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)])
    core.decoder = tokenizers.decoders.ByteLevel()
    core.train_from_iterator(["a\n\n1\n\n2"] * 9, tokenizers.trainers.BpeTrainer(
        special_tokens=["<|endoftext|>"], initial_alphabet=parts.ByteLevel.alphabet(), show_progress=False))
    core.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}))
    tokenizer = HFTokenizer(tmp_path)
    assert len(tokenizer.encode("\n\n1")) == 2 and tokenizer.encode("\n\n1") == core.encode("\n\n1").ids
    tokenizer.save(tmp_path / "again")
    assert HFTokenizer(tmp_path / "again").encode("\n\n1") == core.encode("\n\n1").ids


# Catches: a space in the middle of a text, which SentencePiece writes before a first word.
@pytest.mark.parametrize("scheme", ["first", "always"])
def test_text_in_the_middle_of_another_gets_no_leading_space(scheme, tmp_path):
    vocab = {f"<0x{i:02X}>": i for i in range(256)} | {"</s>": 256, "\u2581": 257, "x": 258, "\u2581x": 259}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("\u2581", "x")], byte_fallback=True))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    steps = tokenizers.decoders
    core.decoder = steps.Sequence([steps.Replace("\u2581", " "), steps.ByteFallback(), steps.Fuse(),
                                   steps.Strip(" ", 1, 0)])
    core.add_special_tokens(["</s>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>").save_pretrained(tmp_path)
    tokenizer = HFTokenizer(tmp_path)
    assert [tokenizer.encode(text) for text in ("x", " x", "xx", "")] == [[258], [259], [258, 258], []]
    assert tokenizer.decode([258, *tokenizer.encode("12+x", literal=True)]) == "x12+x"
    assert tokenizer.prompt("x") == [259]                                 # a whole text begins with a space


# Catches: an end token after a prompt; a date that changes within a run.
def test_prompts_have_no_end_token_and_a_fixed_date(made):
    folder = changed(made(eos="</s>", bos="<s>"), "tokenizer_config.json", add_eos_token=True, add_bos_token=True)
    tokenizer = HFTokenizer(folder)
    assert names(tokenizer, tokenizer.prompt("hi")) == "<s>hi"
    dated = "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    special = {"eos": "<|im_end|>", "bos": "<s>", "pad": "<|endoftext|>"}
    tokenizer = HFTokenizer(made(template=dated + "{{ date_string }}" + QWEN, **special))
    assert tokenizer.today().keys() == {"date_string"}
    tokenizer.set_chat(None, tokenizer.today() | {"date_string": "01 Jan 2000"})
    assert names(tokenizer, tokenizer.prompt("hi")).startswith("01 Jan 2000<|im_start|>")
    assert HFTokenizer(made(template=QWEN, **special)).today() == {}


# Catches: a saved tokenizer.json without the chat template.
def test_loaded_tokenizer_is_saved_unchanged(made, tmp_path):
    folder = made(template=QWEN, eos="<|endoftext|>", bos="<s>")
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 0]}')            # only this file names them
    tokenizer = load_tokenizer(folder)
    assert tokenizer.ends >= {3, 0}
    tokenizer.save(tmp_path / "again")
    again = load_tokenizer(tmp_path / "again")
    assert again.prompt("2+2=") == tokenizer.prompt("2+2=") and again.end == tokenizer.end
    assert again.ends == tokenizer.ends
    assert again.encode("<think> x") == tokenizer.encode("<think> x") and again.vocab_size == tokenizer.vocab_size


# Catches: a missing check of FILES, because transformers creates an empty tokenizer from config.json alone; the
# execution of code from the folder; an exception that is not caught.
def test_folder_without_a_usable_tokenizer_is_refused(tmp_path, made, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(UserError, match="holds no tokenizer.json; fetch the whole folder of the model"):
        HFTokenizer(tmp_path)
    folder = made(eos="</s>")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(
        config | {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}))
    monkeypatch.setattr("builtins.input", lambda *_: "y")                 # transformers may ask
    try:
        HFTokenizer(folder)
    except UserError as error:
        assert "cannot be opened" in str(error)
    assert not (tmp_path / "ran").exists()
    (folder / "tokenizer.json").write_text("{")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"the tokenizer in .* cannot be opened \(.*\); fetch it again"):
        HFTokenizer(folder)


# Catches: `from transformers import AutoTokenizer` at the top of the file.
def test_missing_transformers_gives_the_pip_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError) as error:
        HFTokenizer(tmp_path)
    assert str(error.value) == f"{tmp_path} needs transformers; type: pip install 'spinup-rl[hf]'"
    CharTokenizer("ab").save(tmp_path)
    assert load_tokenizer(tmp_path).encode("b") == [2]


# Catches: new tokens that are decoded without the earlier ones; a character that is decoded before it is complete.
def test_growing_text_equals_the_decoded_tokens(made):
    tokenizer = HFTokenizer(made(eos="</s>"))
    text, ids = Growing(tokenizer), tokenizer.encode("a naïve 日本 text, 🙂 and more")
    for n in range(1, len(ids) + 1):
        assert text(ids[:n]) == tokenizer.decode(ids[:n])
    assert text.context > len(ids) // 2                                   # else all tokens are decoded again


# Catches: a token that the tokenizer class of the model type adds, so that there are more tokens than in the file.
def test_tokenizer_has_no_token_that_its_file_lacks(tmp_path):
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    core = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", pad_token="<|pad|>")
    whole.chat_template = LLAMA
    whole.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "eos_token_id": 256}))
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path)) == 259
    tokenizer = HFTokenizer(tmp_path)
    assert (tokenizer.vocab_size, tokenizer.end, tokenizer.chats) == (258, 256, True)
    assert tokenizer.decode(tokenizer.encode("1 + 2")) == "1 + 2"
