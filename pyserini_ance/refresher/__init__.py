"""The refresher makes from a checkpoint the products that training requests. It never imports the trainer."""
