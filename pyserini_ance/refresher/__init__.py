"""The refresher: turns a checkpoint into what training asks of it. It never imports the trainer."""
