"""KerasHub networks train as without a strategy; `scripts/test_keras_hub.sh` installs KerasHub."""

import importlib.util
import pathlib
import sys
import tempfile
from typing import Any

import keras
import numpy as np
import pytest

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.comparison import ClientTest, fit, numbers

IS_THERE = importlib.util.find_spec("keras_hub") is not None
keras_hub: Any = importlib.import_module("keras_hub") if IS_THERE else None

LETTERS, LENGTH = 50, 12
SENTENCES = ["a good day", "a bad day", "good night", "bad night"] * 4
FEELINGS = np.array([1, 0, 1, 0] * 4)
# Sizes of each transformer.
SIZES = {"vocabulary_size": LETTERS, "num_layers": 1, "intermediate_dim": 32}


def integers(*shape, upto, seed=0):
    return np.random.default_rng(seed).integers(1, upto, shape).astype(np.int32)


def compiled(model, optimizer=None):
    model.compile(
        optimizer or keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def bert():
    """Returns a classifier of sentences, whose preprocessor tokenizes strings."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "bad", "day", "good", "night"]
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=words)
    return keras_hub.models.BertTextClassifier(
        keras_hub.models.BertBackbone(
            **SIZES | {"vocabulary_size": len(words)},
            **{"num_heads": 2, "hidden_dim": 16, "max_sequence_length": 8, "dropout": 0.0},
        ),
        num_classes=2,
        preprocessor=keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8),
        dropout=0.0,
    )


def sentences(strategy):
    with strategy.scope():
        model = compiled(bert())
    return fit(model, np.array(SENTENCES), FEELINGS)


def language_model(make, optimizer=None, times=1):
    """Trains a model to predict the next token; each sequence occurs `times` times."""
    tokens = np.tile(integers(16 // times, LENGTH + 1, upto=LETTERS), (times, 1))
    inputs = {"token_ids": tokens[:, :-1], "padding_mask": np.ones((16, LENGTH), np.int32)}
    return fit(compiled(make(), optimizer), inputs, tokens[:, 1:])


def gpt2(**options):
    backbone = keras_hub.models.GPT2Backbone(
        **SIZES, num_heads=2, hidden_dim=16, max_sequence_length=LENGTH, dropout=0.0
    )
    return keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)


def low_rank_adapters(strategy):
    def make():
        model = gpt2()
        model.backbone.enable_lora(2)
        return model

    with strategy.scope():
        return language_model(make, keras.optimizers.AdamW(0.01, epsilon=0.001))


def low_rank_adapters_of_integers(strategy):
    def make():
        model = gpt2()
        model.quantize("int8")
        model.backbone.enable_lora(2)
        return model

    with strategy.scope():
        return language_model(make)


def shared_embeddings(strategy):
    def make():
        backbone = keras_hub.models.GemmaBackbone(
            **SIZES, num_query_heads=2, num_key_value_heads=1, hidden_dim=16, head_dim=8
        )
        return keras_hub.models.GemmaCausalLM(backbone, preprocessor=None)

    with strategy.scope():
        return language_model(make, keras.optimizers.SGD(0.01))


def experts(strategy):
    """Adds a router loss, which is equal for both halves of a batch and for the whole batch."""

    def make():
        backbone = keras_hub.models.MixtralBackbone(
            **SIZES, num_query_heads=2, num_key_value_heads=1, hidden_dim=16, num_experts=4, top_k=2
        )
        return keras_hub.models.MixtralCausalLM(backbone, preprocessor=None)

    with strategy.scope():
        return language_model(make, times=4)


def vision_transformer(strategy):
    with strategy.scope():
        backbone = keras_hub.models.ViTBackbone(
            **{"image_shape": (32, 32, 3), "patch_size": 8, "num_layers": 1, "num_heads": 2},
            **{"hidden_dim": 16, "mlp_dim": 32, "dropout_rate": 0.0, "attention_dropout": 0.0},
        )
        model = keras_hub.models.ViTImageClassifier(backbone, num_classes=3, preprocessor=None)
        compiled(model)
    return fit(model, numbers(16, 32, 32, 3), integers(16, upto=3))


def residual_network(strategy):
    """Repeats images, so that batch norm computes the same in half a batch as in all of it."""
    with strategy.scope():
        backbone = keras_hub.models.ResNetBackbone(
            **{"input_conv_filters": [64], "input_conv_kernel_sizes": [3]},
            **{"stackwise_num_filters": [64, 16], "stackwise_num_blocks": [1, 1]},
            **{"stackwise_num_strides": [1, 2], "block_type": "basic_block"},
            image_shape=(32, 32, 3),
        )
        model = keras_hub.models.ResNetImageClassifier(backbone, num_classes=3, preprocessor=None)
        compiled(model, keras.optimizers.SGD(0.01))
    images, classes = numbers(4, 32, 32, 3), integers(4, upto=3)
    return fit(model, np.tile(images, (4, 1, 1, 1)), np.tile(classes, 4))


@pytest.mark.long
@pytest.mark.skipif(not IS_THERE, reason="needs KerasHub")
class KerasHubTest(ClientTest):
    num_replicas = (2,)

    def test_texts_train_as_without_a_strategy(self):
        self.assert_same_without_strategy([sentences, shared_embeddings, experts])

    def test_adapters_train_as_without_a_strategy(self):
        self.assert_same_without_strategy([low_rank_adapters, low_rank_adapters_of_integers])

    def test_images_train_as_without_a_strategy(self):
        self.assert_same_without_strategy([vision_transformer, residual_network])

    def test_a_ternary_model_is_saved_whole(self):
        with TernGradStrategy(2).scope():
            model = compiled(bert(), keras.optimizers.AdamW(0.01))
        model.fit(np.array(SENTENCES), FEELINGS, batch_size=8, epochs=10, verbose=0)
        predicted = model.predict(SENTENCES, verbose=0)
        np.testing.assert_array_equal(np.argmax(predicted, axis=-1), FEELINGS)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.keras"
            model.save(path)
            loaded = keras.saving.load_model(path)
        np.testing.assert_allclose(loaded.predict(SENTENCES, verbose=0), predicted, rtol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
