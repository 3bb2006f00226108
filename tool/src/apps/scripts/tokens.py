# Splits texts into tokens, several times over, by a vocabulary that is made here.
import hashlib
import sys

from tokenizers import Tokenizer, models, pre_tokenizers

DIGITS = "0123456789abcdef"
vocabulary = {"[UNK]": 0}
for letter in DIGITS + "w":
    vocabulary.setdefault(letter, len(vocabulary))
merges = [(a, b) for a in DIGITS for b in DIGITS] + [("w", a) for a in DIGITS]
for a, b in merges:
    vocabulary.setdefault(a + b, len(vocabulary))
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

words = ["w%x" % (number * 7919 % 65521) for number in range(20000)]
state, texts = 1, []
for _ in range(int(sys.argv[1])):
    text = []
    for _ in range(200):
        state = (state * 1103515245 + 12345) % 2147483648
        text.append(words[state // 65536 % len(words)])
    texts.append(" ".join(text))

total, digest = 0, hashlib.sha256()
for _ in range(5):
    for encoding in tokenizer.encode_batch(texts):
        total += len(encoding.ids)
        digest.update(bytes(number % 256 for number in encoding.ids))
print(total, digest.hexdigest())
