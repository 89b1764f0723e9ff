"""Everyday cases: reading, writing, saving and freezing weights, and what else a model can be asked."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from everyday import Cases, Scene
from keras import layers

CASES = Cases()
case, each = CASES.one, CASES.each


@case
def get_weights_after_fit(s: Scene) -> Any:
    s.fit()
    return s.model.get_weights()


@case
def kernel_of_a_layer(s: Scene) -> Any:
    s.fit()
    return s.model.layers[0].kernel.numpy(), np.asarray(s.model.get_layer("classes").bias)


@case
def weights_of_a_layer_that_is_held(s: Scene) -> Any:
    layer = s.model.get_layer("hidden")
    s.fit()
    return layer.get_weights()


@case
def weights_of_the_model_that_is_held(s: Scene) -> Any:
    base = s.plain()
    s.use(base, optimizer="adam")
    s.fit()
    return base.get_weights(), base.predict(s.x, verbose=0)


@case
def weights_of_the_held_model_within_epochs(s: Scene) -> Any:
    base, seen = s.plain(), []
    s.use(base, optimizer="adam")
    s.fit(keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(base.get_weights())))
    return seen


@case
def weights_of_the_held_model_within_batches(s: Scene) -> Any:
    base, seen = s.plain(), []
    s.use(base, optimizer="adam")

    def look(batch: int, logs: Any) -> None:
        s.sync()
        seen.append(base.get_weights())

    s.fit(keras.callbacks.LambdaCallback(on_train_batch_end=look), epochs=1)
    return seen


@each("weights", "trainable_weights", "trainable_variables", "non_trainable_variables")
def lists_of(s: Scene, name: str) -> Any:
    s.fit()
    return [(variable.name, np.asarray(variable)) for variable in getattr(s.model, name) if "seed" not in variable.name]


@case
def set_weights_before_fit(s: Scene) -> Any:
    s.model.set_weights([weight * 0.5 for weight in s.model.get_weights()])
    return s.fit()


@case
def set_weights_between_fits(s: Scene) -> Any:
    first = s.fit()
    s.model.set_weights([weight * 0.5 for weight in s.model.get_weights()])
    return first, s.fit(), s.evaluate()


@case
def assign_to_a_kernel_between_fits(s: Scene) -> Any:
    first = s.fit()
    s.model.layers[0].kernel.assign(s.model.layers[0].kernel * 0.5)
    return first, s.fit()


@case
def assign_to_a_held_kernel_between_fits(s: Scene) -> Any:
    kernel = s.model.layers[0].kernel
    first = s.fit()
    kernel.assign(kernel * 0.5)
    return first, s.predict(), s.fit()


@each("model.keras", "model.h5")
def save_and_load(s: Scene, name: str) -> Any:
    s.fit()
    s.model.save(s.folder / name)
    loaded = keras.models.load_model(s.folder / name)
    return loaded.predict(s.x, verbose=0), [type(layer).__name__ for layer in loaded.layers]


@case
def save_load_and_go_on(s: Scene) -> Any:
    s.fit()
    s.model.save(s.folder / "model.keras")
    s.model = s.made(keras.models.load_model(s.folder / "model.keras"))
    return s.fit(), int(s.model.optimizer.iterations), s.evaluate()


@case
def save_and_load_weights(s: Scene) -> Any:
    s.fit()
    s.model.save_weights(s.folder / "some.weights.h5")
    begun = s.fit()
    s.model.load_weights(s.folder / "some.weights.h5")
    return begun, s.evaluate(), s.fit()


@case
def save_to_a_file_that_is_there(s: Scene) -> Any:
    for _ in range(2):
        s.fit(epochs=1)
        s.model.save(s.folder / "model.keras", overwrite=True)
    return keras.models.load_model(s.folder / "model.keras").get_weights()


@each("tf_saved_model", "nonsense")
def export(s: Scene, kind: str) -> Any:
    s.fit()
    return s.model.export(s.folder / "exported", format=kind, verbose=False)


@case
def config_and_json(s: Scene) -> Any:
    s.fit()
    other = keras.models.model_from_json(s.model.to_json())
    other.set_weights(s.model.get_weights())
    return other.predict(s.x, verbose=0), s.model.get_config()["name"] == other.name


@case
def clone(s: Scene) -> Any:
    s.fit()
    other = keras.models.clone_model(s.model)
    other.set_weights(s.model.get_weights())
    return other.predict(s.x, verbose=0)


@case
def summary(s: Scene) -> Any:
    lines: list[str] = []
    s.fit()
    s.model.summary(print_fn=lines.append)
    return [line.split("(")[0] for line in "".join(lines).splitlines()[1:]], s.model.count_params()


@case
def shapes(s: Scene) -> Any:
    return s.model.input_shape, s.model.output_shape, len(s.model.layers), len(s.model.inputs), s.model.built


@case
def is_a_model(s: Scene) -> Any:
    return isinstance(s.model, keras.Model), isinstance(s.model, keras.Sequential)


@case
def features_of_a_layer(s: Scene) -> Any:
    s.fit()
    return keras.Model(s.model.inputs, s.model.layers[0].output).predict(s.x, verbose=0)


@case
def a_call_of_the_model(s: Scene) -> Any:
    s.fit()
    return np.asarray(s.model(s.x)), np.asarray(s.model(s.x[:2], training=True))


@case
def variables_of_the_optimizer(s: Scene) -> Any:
    s.fit()
    return [np.asarray(variable) for variable in s.model.optimizer.variables]


@case
def step_of_the_optimizer(s: Scene) -> Any:
    s.fit()
    return int(s.model.optimizer.iterations), float(s.model.optimizer.learning_rate)


@each("assign", "set", "callback")
def rate_between_fits(s: Scene, how: str) -> Any:
    first = s.fit()
    if how == "assign":
        s.model.optimizer.learning_rate.assign(0.05)
    elif how == "set":
        s.model.optimizer.learning_rate = 0.05
    else:
        s.fit(keras.callbacks.LearningRateScheduler(lambda epoch: 0.05), epochs=1)
    return first, s.fit(), float(s.model.optimizer.learning_rate)


@case
def a_schedule(s: Scene) -> Any:
    s.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.05, 6)))
    return s.fit(), float(s.model.optimizer.learning_rate)


@case
def freeze_between_fits(s: Scene) -> Any:
    first = s.fit()
    s.model.layers[0].trainable = False
    s.compile()
    return first, s.fit(), len(s.model.trainable_weights)


@case
def thaw_between_fits(s: Scene) -> Any:
    s.model.layers[0].trainable = False
    s.compile()
    first = s.fit()
    s.model.trainable = True
    s.compile(keras.optimizers.SGD(0.1))
    return first, s.fit()


@case
def freeze_batch_normalization(s: Scene) -> Any:
    parts = [keras.Input((6,)), layers.Dense(8, use_bias=False), layers.BatchNormalization(name="norm"), layers.Dense(3, "softmax")]
    s.use(keras.Sequential(parts), optimizer="sgd")
    first = s.fit(batch_size=22)
    s.model.get_layer("norm").trainable = False
    s.compile("sgd")
    return first, s.fit(batch_size=22), s.model.get_layer("norm").get_weights()


@case
def a_new_head_on_a_trained_body(s: Scene) -> Any:
    s.fit()
    body = keras.Model(s.model.inputs, s.model.layers[0].output)
    body.trainable = False
    inputs = keras.Input((6,))
    head = layers.Dense(3, "softmax", kernel_initializer=keras.initializers.GlorotUniform(3))
    s.use(keras.Model(inputs, head(body(inputs))), optimizer=keras.optimizers.Adam(0.01))
    return s.fit(), s.evaluate()


@case
def another_optimizer(s: Scene) -> Any:
    first = s.fit()
    s.compile(keras.optimizers.RMSprop(0.01))
    return first, s.fit(), int(s.model.optimizer.iterations)


@case
def another_loss(s: Scene) -> Any:
    first = s.fit()
    s.compile("adam", "categorical_crossentropy", ["categorical_accuracy"])
    return first, s.fit(y=np.eye(3, dtype="float32")[s.y])


@case
def other_metrics(s: Scene) -> Any:
    first = s.fit()
    s.compile(metrics=["sparse_top_k_categorical_accuracy"])
    return first, s.fit(), s.evaluate(return_dict=True)


@case
def biases_that_do_not_decay(s: Scene) -> Any:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    s.model.set_weights([np.ones_like(weight) for weight in s.model.get_weights()])
    s.compile(optimizer)
    return s.fit()


@case
def a_layer_that_does_not_decay(s: Scene) -> Any:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=1.0)
    optimizer.exclude_from_weight_decay(var_list=s.model.layers[0].trainable_variables)
    s.compile(optimizer)
    return s.fit()


@case
def names_of_metrics(s: Scene) -> Any:
    s.fit()
    return [metric.name for metric in s.model.metrics], s.model.metrics_names


@case
def results_of_metrics(s: Scene) -> Any:
    s.fit()
    return s.model.get_metrics_result()


@case
def reset_of_metrics(s: Scene) -> Any:
    s.fit()
    s.model.reset_metrics()
    return s.evaluate()


@case
def the_loss_of_keras_itself(s: Scene) -> Any:
    s.fit()
    return np.asarray(s.model.compute_loss(x=s.x, y=s.y, y_pred=s.model(s.x)))


@case
def config_of_compile(s: Scene) -> Any:
    s.fit()
    other = s.plain()
    other.compile_from_config(s.model.get_compile_config())
    return type(other.optimizer).__name__, other.loss


@case
def attributes_of_ones_own(s: Scene) -> Any:
    s.model.remark = "mine"
    s.fit()
    return s.model.remark, s.model.name == s.model.keras_model.name if hasattr(s.model, "keras_model") else True
