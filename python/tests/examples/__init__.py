"""Programs as Keras' users write them, after the descriptions of keras.io's examples: small, on data that they make themselves.

Each has `main(parallel, rate, callbacks, epochs)`: the program from its data to what it tells in the end. `parallel` is the one line
that brings it to adapters, `rate` that of its dropout, and `callbacks` see its training.
"""
